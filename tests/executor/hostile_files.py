"""Programs that read, write or change files."""

import stat

from tests.executor.hostile_case import (
  ABSENT,
  DENIED,
  absent,
  denied,
  fails,
  gives,
  refused,
)

_FLAGS = "os.O_WRONLY | os.O_CREAT"
# Imports a module from the folders where the standard library may be.
_DISK_IMPORT = """
import os, sys
def f():
  base = sys.base_prefix + "/lib/python%d.%d" % sys.version_info[:2]
  sys.path[:] = [base, base + "/lib-dynload"]
  import {module}
  return "allowed"
"""

READING = {
  "os_open": denied("os.open('/etc/passwd', os.O_RDONLY)"),
  "os_open_shadow": denied("os.open('/etc/shadow', os.O_RDONLY)"),
  "os_open_path_only": denied("os.open('/etc/passwd', os.O_PATH)"),
  "os_open_folder": denied("os.open('/', os.O_RDONLY | os.O_DIRECTORY)"),
  "io_open": denied("io.open('/etc/passwd').read()", "io"),
  "io_open_code": denied("io.open_code('/etc/passwd').read()", "io"),
  "io_file_by_subclasses": fails(
    "def f():\n"
    "  todo = list(object.__subclasses__())\n"
    "  while todo:\n"
    "    kind = todo.pop()\n"
    "    todo += type.__subclasses__(kind)\n"
    "    if kind.__name__ == 'FileIO':\n"
    "      return kind('/etc/passwd').readall()",
    *DENIED,
  ),
  "open_of_the_builtins_module": denied(
    "builtins.open('/etc/passwd').read()", "builtins"
  ),
  "open_is_no_builtin": fails("def f():\n  return open('/etc/passwd')"),
  "codecs_open": denied("codecs.open('/etc/passwd').read()", "codecs"),
  "tokenize_open": denied("tokenize.open('/etc/passwd')", "tokenize"),
  "pathlib_read": denied(
    "pathlib.Path('/etc/passwd').read_text()", "pathlib", (*DENIED, *ABSENT)
  ),
  "linecache": gives(
    "import linecache\ndef f():\n  return linecache.getlines('/etc/passwd')",
    "[]",
  ),
  "loader_get_data": denied(
    "importlib.machinery.SourceFileLoader('', '').get_data('/etc/passwd')",
    "importlib.machinery",
  ),
  "password_database": gives(
    "import pwd\ndef f():\n  return pwd.getpwall()", "[]"
  ),
  "list_folder": denied("os.listdir('/')"),
  "scan_folder": denied("os.scandir('/tmp')"),
  "walk_folders": gives("import os\ndef f():\n  return [*os.walk('/')]", "[]"),
  "stat": denied("os.stat('/etc/passwd')"),
  "access": gives("import os\ndef f():\n  return os.access('/', 0)", "False"),
  "read_link": denied("os.readlink('/proc/self/exe')"),
  "working_folder": denied("os.getcwd()"),
  "file_system": denied("os.statvfs('/')"),
  "extended_attributes": denied("os.listxattr('/')"),
  "own_memory": denied("os.open('/proc/self/mem', os.O_RDONLY)"),
  "own_memory_map": denied("io.open('/proc/self/maps').read()", "io"),
  "own_environment_file": denied("io.open('/proc/self/environ').read()", "io"),
  "own_descriptors": denied("os.listdir('/proc/self/fd')"),
  "parent_memory": denied("os.open(f'/proc/{os.getppid()}/mem', os.O_RDWR)"),
  "environment_of_init": denied("io.open('/proc/1/environ').read()", "io"),
  "trainer_memory": denied("os.open('/proc/TRAINER/mem', os.O_RDONLY)"),
  "trainer_environment": denied("os.open('/proc/TRAINER/environ', 0)"),
  "trainer_command_line": denied("os.open('/proc/TRAINER/cmdline', 0)"),
  "device_memory": denied(
    "os.open('/dev/mem', os.O_RDONLY)",
    errors=(*DENIED, "FileNotFoundError"),
  ),
  "device_terminal": denied("os.open('/dev/tty', os.O_RDWR)"),
  "device_null": denied("os.open('/dev/null', os.O_RDWR)"),
  "executor_source": denied(
    "io.open(sys.modules['__main__'].__file__).read()", "io, sys"
  ),
  "standard_input": gives("import os\ndef f():\n  return os.read(0, 9)", "b''"),
  "module_from_disk": fails(_DISK_IMPORT.format(module="ensurepip"), *ABSENT),
  "ctypes_from_disk": fails(_DISK_IMPORT.format(module="ctypes"), *ABSENT),
  "ctypes": absent("ctypes"),
  "ctypes_without_its_cover": absent("_ctypes"),
  "mmap": denied("mmap.mmap(-1, 99, prot=7)", "mmap", (*DENIED, *ABSENT)),
  "sqlite": denied(
    "sqlite3.connect('WATCH/new').execute('create table t (a)')",
    "sqlite3",
    (*ABSENT, "OperationalError"),
  ),
}

WRITING = {
  "create": denied(f"os.open('WATCH/new', {_FLAGS})"),
  "create_in_tmp": denied(f"os.open('/tmp/PREFIX-new', {_FLAGS})"),
  "create_in_shared_memory": denied(
    f"os.open('/dev/shm/PREFIX-new', {_FLAGS})"
  ),
  "create_in_the_working_folder": denied(f"os.open('PREFIX-new', {_FLAGS})"),
  "create_without_a_name": denied(
    "os.open('WATCH', os.O_WRONLY | os.O_TMPFILE)"
  ),
  "create_by_io": denied("io.open('WATCH/new', 'w').write('x')", "io"),
  "temporary_file": denied(
    "tempfile.NamedTemporaryFile(dir='WATCH', delete=False)",
    "tempfile",
    (*DENIED, *ABSENT),
  ),
  "write_to_a_file": denied("io.open('WATCH/kept', 'w').write('x')", "io"),
  "append_to_a_file": denied("io.open('WATCH/kept', 'a').write('x')", "io"),
  "truncate": denied("os.truncate('WATCH/kept', 0)"),
  "remove": denied("os.remove('WATCH/kept')"),
  "rename": denied("os.rename('WATCH/kept', 'WATCH/new')"),
  "replace": denied("os.replace('WATCH/kept', 'WATCH/new')"),
  "change_mode": denied("os.chmod('WATCH/kept', 0o4777)"),
  "change_owner": denied("os.chown('WATCH/kept', os.getuid(), -1)"),
  "change_times": denied("os.utime('WATCH/kept', (0, 0))"),
  "change_attributes": denied("os.setxattr('WATCH/kept', 'user.x', b'x')"),
  "make_folder": denied("os.mkdir('WATCH/new')"),
  "remove_folder": denied("os.rmdir('WATCH/folder')"),
  "make_symbolic_link": denied("os.symlink('/etc/passwd', 'WATCH/new')"),
  "make_hard_link": denied("os.link('WATCH/kept', 'WATCH/new')"),
  "make_fifo": denied("os.mkfifo('WATCH/new')"),
  "make_node": denied(f"os.mknod('WATCH/new', {stat.S_IFREG | 0o666})"),
  "make_socket_file": refused(
    "bind(libc.socket(1, 1, 0), b'\\1\\0' + path, 2 + len(path))",
    "path = b'WATCH/new'",
  ),
  "change_folder": denied("os.chdir('/tmp')"),
  "change_root": denied("os.chroot('/')"),
  "change_mask": denied("os.umask(0)", "os", (*DENIED, "OSError")),
  "sync": refused("syncfs(1)"),
  # Without the sandbox it changes only the program's view of the mounts.
  "mount": refused(
    "unshare(0x20000) or libc.mount(b'none', b'/', None, 0x44000, None)"
  ),
}

DESCRIPTORS = {
  "memory_file": denied("os.memfd_create('x')"),
  "secret_memory_file": refused("syscall(447, 0)"),
  "pipe": denied("os.pipe()"),
  "event_descriptor": denied("os.eventfd(0)"),
  "copy_a_descriptor": denied("os.dup(1)"),
  "copy_over_every_descriptor": denied(
    "[os.dup2(1, number) for number in range(3, 16)]"
  ),
  "pseudo_terminal": denied("os.openpty()"),
  "unblock_every_descriptor": denied(
    "[os.set_blocking(number, False) for number in range(16)]"
  ),
  "inherit_every_descriptor": denied(
    "[os.set_inheritable(number, True) for number in range(16)]"
  ),
  "watch_files": refused("inotify_init()"),
  "lock_a_file": denied(
    "fcntl.flock(0, fcntl.LOCK_EX)", "fcntl", (*DENIED, *ABSENT)
  ),
  "close_every_descriptor": fails(
    "import os\ndef f():\n  os.closerange(0, 99)", "NoReport"
  ),
  "descriptor_of_the_trainer": refused(
    "syscall(438, libc.syscall(434, TRAINER, 0), 1, 0)"
  ),
  "folder_above_the_root": denied("os.open('../../..', os.O_RDONLY)"),
}

CASES = READING | WRITING | DESCRIPTORS
