"""Programs that do harm, and how each must end. Right endings are worked out by hand.

SECRET stands for a file of the user's who runs the sandbox.
"""

from __future__ import annotations

from typing import NamedTuple


class Hostile(NamedTuple):
    """A program, the endings that are right, and a word that it must have written."""

    code: str
    endings: str
    word: str = ""


BATTERY = {
    "hello": Hostile("print('hello')", "done", "hello"),
    "raises": Hostile("1 / 0", "raised"),
    "exits 0": Hostile("import os; os._exit(0)", "exited"),
    "exits 3": Hostile("import sys; sys.exit(3)", "exited"),
    "aborts": Hostile("import os; os.abort()", "crashed"),
    "reads no memory": Hostile("import ctypes; ctypes.string_at(1)", "crashed"),
    "fork bomb": Hostile("import os\nwhile True:\n    os.fork()", "processes"),
    "stubborn fork bomb": Hostile(
        "import os\nwhile True:\n    try:\n        os.fork()\n    except OSError:\n        pass", "processes"
    ),
    "sessions": Hostile(
        "import os, time\nfor _ in range(5):\n    if os.fork() == 0:\n        os.setsid()\n"
        "        if os.fork() == 0:\n            os.closerange(0, 9)\n            time.sleep(90)\n"
        "        os._exit(0)\nprint('left them')",
        "done",
        "left them",
    ),
    "threads": Hostile(
        "import threading, time\nwhile True:\n    threading.Thread(target=time.sleep, args=(90,)).start()",
        "processes",
    ),
    "memory": Hostile("x = []\nwhile True:\n    x.append(bytearray(10_000_000))", "memory"),
    "memory in parts": Hostile(
        "import os, time\nfor _ in range(8):\n    if os.fork() == 0:\n        x = b'x' * 60_000_000\n"
        "        time.sleep(90)\ntime.sleep(90)",
        "memory",
    ),
    "prints": Hostile("while True:\n    print('x' * 1000)", "output"),
    "complains": Hostile("import sys\nwhile True:\n    print('x' * 1000, file=sys.stderr)", "output"),
    "one file": Hostile("f = open('a', 'wb')\nwhile True:\n    f.write(b'x' * 1_000_000)", "files"),
    "many files": Hostile(
        "import time\nfor k in range(40):\n    open(f'f{k}', 'wb').write(b'x' * 1_000_000)\ntime.sleep(90)",
        "files",
    ),
    "open files": Hostile("f = []\nwhile True:\n    f.append(open('/dev/null'))", "files"),
    "ignores all": Hostile(
        "import os, signal\nfor k in range(1, 65):\n    try:\n        signal.signal(k, signal.SIG_IGN)\n"
        "    except (OSError, ValueError):\n        pass\nos.closerange(0, 64)\nwhile True:\n    pass",
        "timeout",
    ),
    "stops itself": Hostile("import os, signal; os.kill(os.getpid(), signal.SIGSTOP)", "timeout"),
    "kills": Hostile(
        "import os, signal\npids = [-1, os.getppid(), 1, *range(2, 5000)]\nfor pid in pids:\n"
        "    for number in (signal.SIGTERM, signal.SIGKILL):\n        if pid != os.getpid():\n"
        "            try:\n                os.kill(pid, number)\n            except OSError:\n"
        "                pass\nprint('still here')",
        "done",
        "still here",
    ),
    "network": Hostile(
        "import socket\nfor family in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK,"
        " socket.AF_PACKET):\n"
        "    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM, socket.SOCK_RAW):\n        try:\n"
        "            socket.socket(family, kind).connect(('1.1.1.1', 53))\n            print('connected')\n"
        "        except OSError:\n            pass\nprint('no way out')",
        "done",
        "no way out",
    ),
    "rights": Hostile(
        "import ctypes, os\nlibc = ctypes.CDLL(None)\ngot = []\n"
        "for name in ('setuid', 'setgid'):\n    try:\n        getattr(os, name)(0); got.append(name)\n"
        "    except OSError:\n        pass\n"
        "got += ['unshare'] * (libc.unshare(0x10000000) == 0)\n"
        "got += ['mount'] * (libc.mount(b'none', b'/', b'tmpfs', 0, b'') == 0)\n"
        "got += ['ptrace'] * (libc.ptrace(16, os.getppid(), 0, 0) == 0)\n"
        "got += ['chroot'] * (libc.chroot(b'/') == 0)\n"
        "got += ['hostname'] * (libc.sethostname(b'x', 1) == 0)\n"
        "print('got', got)",
        "done",
        "got []",
    ),
    "limits": Hostile(
        "import resource as r\nfor kind in (r.RLIMIT_AS, r.RLIMIT_NPROC, r.RLIMIT_FSIZE, r.RLIMIT_NOFILE):\n"
        "    try:\n        r.setrlimit(kind, (-1, -1)); print('raised', kind)\n"
        "    except (ValueError, OSError):\n        pass\nprint('held')",
        "done",
        "held",
    ),
    "other memory": Hostile(
        "import os\ngot = []\nfor pid in {1, os.getppid()} | set(range(2, 3000)):\n"
        "    for name in ('mem', 'environ', 'maps'):\n        try:\n"
        "            if pid != os.getpid() and open(f'/proc/{pid}/{name}', 'rb').read(1):\n"
        "                got.append((pid, name))\n        except OSError:\n            pass\n"
        "print('got', got)",
        "done",
    ),
    "traps for the clean-up": Hostile(
        "import os\nos.makedirs('a/b/c')\nopen('a/b/c/f', 'w').close()\nos.symlink('/tmp', 'a/out')\n"
        "os.symlink('SECRET', 'a/secret')\nos.chmod('a/b/c', 0)\nos.chmod('a/b', 0)\n"
        "os.chmod('a', 0)\nos.chmod('.', 0)\nprint('set')",
        "done",
        "set",
    ),
    "secret": Hostile(
        "import os\ntry:\n    print('read', open('SECRET').read())\n"
        "    os.remove('SECRET')\n"
        "except OSError:\n    print('nothing')",
        "done",
    ),
    "after all": Hostile("print(sum(range(10)))", "done", "45"),
}
