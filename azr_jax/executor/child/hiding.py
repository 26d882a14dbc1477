"""Hides forbidden modules from a program, in the child that runs it.

`forbidden.py` finds import statements. A program can also reach a module
without one: through `sys.modules`, through an attribute of an allowed module
(`queue.time`, `contextlib.os`), or by a computed name
(`__import__('ti' + 'me')`). So in a child whose job has rules:

* `sys.modules` maps each forbidden module, its submodules and its C part
  (`_datetime`) to None, so every import of it raises;
* each module that leads to a forbidden one is replaced by a copy without the
  attributes that lead there. The copy's functions keep the original globals, so
  they still work;
* the interpreter's loaders refuse to load a module twice.

Only names are hidden. A program that walks frames or the `__globals__` of a
function still finds a module, and `object.__subclasses__()` lists the classes
of forbidden modules, such as `datetime.datetime` and `_random.Random`. That
gains it little: clocks differ between runs (`clocks.py`), and programs are
graded under the same rules as they were validated.
"""

import _imp
import sys
import types
from collections.abc import Callable, Collection, Iterable
from typing import Any

_Module = types.ModuleType
_KINDS = (
  type,
  types.FunctionType,
  types.BuiltinFunctionType,
  types.MethodType,
)
# The interpreter itself uses these modules' attributes.
_NEVER_COPIED = ("builtins", "sys")
_LOADERS = "create_builtin create_dynamic get_frozen_object init_frozen".split()
# Tables by module name.
_NAMES: dict[str, set[str]] = {}  # Rule name -> the modules it forbids.
# A copy of the module that holds no modules but submodules.
_COPIES: dict[str, _Module] = {}
# The modules that have this module as an attribute.
_HOLDERS: dict[str, set[str]] = {}
# Where packages hold it: (package, attribute).
_SUBMODULE_OF: dict[str, list[tuple[str, str]]] = {}
# Where its functions and classes are: (module, attribute).
_MEMBERS: dict[str, list[tuple[str, str]]] = {}
_LOADED: set[str] = set()
# Loaders of `_imp` that refuse to load a module twice.
_GUARDS: dict[str, Callable[..., object]] = {}
# The changes that `hide` makes: what the program will find under some names,
# and each (module, attribute) to remove from modules that have no copy.
_Plan = tuple[dict[str, _Module | None], list[tuple[_Module, str]]]
_PLANS: dict[tuple[str, ...], _Plan] = {}  # By rules.


def prepare(usual_rules: tuple[str, ...]) -> None:
  """Copies modules and records references between them; runs in the zygote.

  Args:
    usual_rules: rules to plan in advance, so that `hide` is fast. A child has
      to plan any other rules itself, which touches a hundred more pages.
  """
  modules = {n: m for n, m in sys.modules.items() if type(m) is _Module}
  names_of: dict[int, list[str]] = {}
  for name, module in modules.items():
    names_of.setdefault(id(module), []).append(name)
  for name, module in modules.items():
    _add_rules(name, names_of[id(module)])
  for names in names_of.values():
    if names[0] not in _NEVER_COPIED:
      _copy(modules[names[0]], names, names_of)
  _LOADED.update(sys.modules)
  for name in _LOADERS:
    if hasattr(_imp, name):
      _GUARDS[name] = _refusing(getattr(_imp, name))
  _PLANS[usual_rules] = _plan(usual_rules)


def namespaces() -> list[dict[str, Any]]:
  """Returns the globals of all modules, and the attributes of the copies."""
  modules = [m for m in sys.modules.values() if type(m) is _Module]
  modules += [copy for plan in _PLANS.values() for copy in plan[0].values()]
  return [
    vars(module)
    for module in (*modules, *_COPIES.values())
    if module is not None
  ]


def _add_rules(name: str, aliases: Iterable[str]) -> None:
  """Records which rules forbid a module."""
  parts = name.removeprefix("_").split(".")
  for length in range(1, len(parts) + 1):
    rule = ".".join(parts[:length])
    _NAMES.setdefault(rule, set()).update(aliases)


def _copy(
  module: _Module, names: list[str], names_of: dict[int, list[str]]
) -> None:
  """Copies a module and records its references to other modules.

  Args:
    module: the module to copy.
    names: the module's names in `sys.modules`.
    names_of: the names of every module, by `id`.
  """
  copy = _Module(names[0])
  vars(copy).update(vars(module))
  for attribute, value in vars(module).items():
    if isinstance(value, _Module):
      _add_reference(copy, names, attribute, names_of.get(id(value), ()))
    elif isinstance(value, _KINDS):
      owner = getattr(value, "__module__", None)
      if isinstance(owner, str) and owner not in names:
        _MEMBERS.setdefault(owner, []).append((names[0], attribute))
  _COPIES.update(dict.fromkeys(names, copy))


def _add_reference(
  copy: _Module, holders: list[str], attribute: str, targets: Iterable[str]
) -> None:
  """Records a module's reference to another and drops it from the copy."""
  is_submodule = False
  for target in targets:
    _HOLDERS.setdefault(target, set()).update(holders)
    for holder in holders:
      if f"{holder}.{attribute}" == target:
        is_submodule = True
        _SUBMODULE_OF.setdefault(target, []).append((holder, attribute))
  if not is_submodule:
    del vars(copy)[attribute]


def hide(rules: tuple[str, ...]) -> None:
  """Hides forbidden modules from the program that this process will run.

  Args:
    rules: names of modules or of module attributes, as in `job.Job`.
  """
  changes, removed = _PLANS.get(rules) or _plan(rules)
  vars(sys)["modules"].update(changes)
  for module, attribute in removed:
    vars(module).pop(attribute, None)
  _LOADED.update(changes)
  load_nothing_twice()


def _plan(rules: tuple[str, ...]) -> _Plan:
  """Returns the changes that `hide` makes."""
  forbidden = {name for rule in rules for name in _forbidden_names(rule)}
  attributes = [rule.rpartition(".") for rule in rules if "." in rule]
  parents = {parent for parent, _, _ in attributes if parent in _COPIES}
  changes: dict[str, _Module] = {}
  for copy, names in _leading_to(forbidden, parents):
    own = _Module(copy.__name__)
    vars(own).update(vars(copy))
    changes.update(dict.fromkeys(names, own))
  for name, copy in changes.items():
    for package, attribute in _SUBMODULE_OF.get(name, ()):
      vars(changes[package])[attribute] = copy
  for name in forbidden:
    places = (*_MEMBERS.get(name, ()), *_SUBMODULE_OF.get(name, ()))
    for holder, attribute in places:
      vars(changes[holder]).pop(attribute, None)
  removed = []
  for parent, _, attribute in attributes:
    if parent in changes:
      vars(changes[parent]).pop(attribute, None)
    elif parent in sys.modules:
      removed.append((sys.modules[parent], attribute))
  return changes | dict.fromkeys(forbidden), removed


def _leading_to(
  forbidden: set[str], parents: set[str]
) -> Iterable[tuple[_Module, list[str]]]:
  """Returns the copies that lead to forbidden modules, with their names."""
  leading = set(parents)
  for name in forbidden:
    leading.update(holder for holder, _ in _MEMBERS.get(name, ()))
  todo = [*forbidden, *leading]
  while todo:
    new = _HOLDERS.get(todo.pop(), set()) - leading
    leading |= new
    todo += new
  names_of: dict[int, tuple[_Module, list[str]]] = {}
  for name in leading:
    names_of.setdefault(id(_COPIES[name]), (_COPIES[name], []))[1].append(name)
  return names_of.values()


def _forbidden_names(rule: str) -> Collection[str]:
  # A dotted rule may refer to an attribute that is not a module.
  return _NAMES.get(rule, () if "." in rule else (rule,))


def load_nothing_twice() -> None:
  """Makes the interpreter refuse to load a second copy of a module."""
  vars(_imp).update(_GUARDS)


def _refusing(load: Callable[..., object]) -> Callable[..., object]:
  """Returns a loader of `_imp` that refuses to load a module twice."""

  def load_new(module: object, *arguments: object) -> object:
    name = getattr(module, "name", module)
    if name in _LOADED:
      raise ImportError(name)
    return load(module, *arguments)

  return load_new
