"""Hides forbidden modules from a program, in the child that runs it.

`forbidden.py` finds imports that a program states. A program can also reach a
module without an import that can be read: by `sys.modules`, by an attribute of
a module that it may use (`queue.time`, `contextlib.os`), or by a name that it
builds (`__import__('ti' + 'me')`). So in a child whose job has rules:

* `sys.modules` has None for a forbidden module, its submodules and its C part
  (`_datetime`), so every import of it raises;
* a module that leads to one is replaced by a copy without the attributes that
  do. Its functions keep the module's own globals, so they work as before;
* the interpreter's loaders refuse what was loaded before.

Only names are hidden. A program that walks frames or the `__globals__` of a
function still finds a module. It gains little: clocks differ between runs
(`clocks.py`), and graded programs run under the rules of their validation.
"""

import _imp
import sys
import types

_Module = types.ModuleType
_KINDS = (
  type,
  types.FunctionType,
  types.BuiltinFunctionType,
  types.MethodType,
)
# The interpreter reads and writes attributes of these.
_NEVER_COPIED = ("builtins", "sys")
_LOADERS = "create_builtin create_dynamic get_frozen_object init_frozen".split()
# All by the name of a module:
_NAMES = {}  # The names of the modules that a rule of this name forbids.
_COPIES = {}  # A copy without references to other modules but submodules.
_HOLDERS = {}  # The names of the modules that have it as an attribute.
_SUBMODULE_OF = {}  # Where packages have it: (name of the package, attribute).
_MEMBERS = {}  # Where else its functions and classes are: (name, attribute).
_LOADED = set()
_GUARDS: dict = {}  # Loaders of `_imp` that load nothing twice.
_PLANS = {}  # By rules: what `hide` does.


def prepare(usual_rules):
  """Copies modules and finds who refers to them, once, in the zygote.

  Args:
    usual_rules: rules for which `hide` is to be quick. The others are planned
      in the child, which writes to a hundred more pages.
  """
  modules = {n: m for n, m in sys.modules.items() if type(m) is _Module}
  names_of = {}
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


def namespaces():
  """Returns the globals of all modules, and the attributes of the copies."""
  modules = [m for m in sys.modules.values() if type(m) is _Module]
  modules += [copy for plan in _PLANS.values() for copy in plan[0].values()]
  return [
    vars(module)
    for module in (*modules, *_COPIES.values())
    if module is not None
  ]


def _add_rules(name, aliases):
  """Notes by which rules a module is forbidden."""
  parts = name.removeprefix("_").split(".")
  for length in range(1, len(parts) + 1):
    rule = ".".join(parts[:length])
    _NAMES.setdefault(rule, set()).update(aliases)


def _copy(module, names, names_of):
  """Copies a module; notes what it has of others.

  Args:
    module: the module.
    names: its names in `sys.modules`.
    names_of: the names of each module, by its id.
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


def _add_reference(copy, holders, attribute, targets):
  """Notes a module's reference to another; removes it from the copy."""
  is_submodule = False
  for target in targets:
    _HOLDERS.setdefault(target, set()).update(holders)
    for holder in holders:
      if f"{holder}.{attribute}" == target:
        is_submodule = True
        _SUBMODULE_OF.setdefault(target, []).append((holder, attribute))
  if not is_submodule:
    del vars(copy)[attribute]


def hide(rules):
  """Hides what the rules forbid from the program that this process will run.

  Args:
    rules: names of modules, and of attributes of modules, as in `job.Job`.
  """
  changes, removed = _PLANS.get(rules) or _plan(rules)
  vars(sys)["modules"].update(changes)
  for module, attribute in removed:
    vars(module).pop(attribute, None)
  _LOADED.update(changes)
  load_nothing_twice()


def _plan(rules):
  """Returns what `hide` does.

  That is {name: the module that the program finds under it, or None}, and the
  (module, attribute) that are removed from modules without a copy.
  """
  forbidden = {name for rule in rules for name in _forbidden_names(rule)}
  attributes = [rule.rpartition(".") for rule in rules if "." in rule]
  parents = {parent for parent, _, _ in attributes if parent in _COPIES}
  changes = {}
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


def _leading_to(forbidden, parents):
  """Returns the copies of modules that lead to others, each with its names."""
  leading = set(parents)
  for name in forbidden:
    leading.update(holder for holder, _ in _MEMBERS.get(name, ()))
  todo = [*forbidden, *leading]
  while todo:
    new = _HOLDERS.get(todo.pop(), set()) - leading
    leading |= new
    todo += new
  names_of = {}
  for name in leading:
    names_of.setdefault(id(_COPIES[name]), (_COPIES[name], []))[1].append(name)
  return names_of.values()


def _forbidden_names(rule):
  # A dotted rule may be about an attribute that is no module.
  return _NAMES.get(rule, () if "." in rule else (rule,))


def load_nothing_twice():
  """Lets the interpreter refuse to load a second copy of a module."""
  vars(_imp).update(_GUARDS)


def _refusing(load):
  """Returns a loader of `_imp` that refuses what was loaded before."""

  def load_new(module, *arguments):
    name = getattr(module, "name", module)
    if name in _LOADED:
      raise ImportError(name)
    return load(module, *arguments)

  return load_new
