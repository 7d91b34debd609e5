"""What an environment does to the process around it: children, threads, prints, folders, signals, exits."""

import os
import signal
import subprocess
import sys
import threading

from ten import Ten


class Spawns(Ten):
    """A simulator in a process of its own, which `close` ends."""

    def __init__(self):
        super().__init__()
        self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])

    def close(self):
        super().close()
        self.child.kill()
        self.child.wait()


class Threads(Ten):
    """A thread that is no daemon, which `close` ends."""

    def __init__(self):
        super().__init__()
        self.gone = threading.Event()
        threading.Thread(target=self.gone.wait).start()

    def close(self):
        super().close()
        self.gone.set()


class Shadow(Ten):
    """Has parameters whose names are those of transforms and of purerl's own, and pays them."""

    def __init__(self, reward_scale=1.0, num_envs=3, frame_stack=1):
        super().__init__()
        self.args = reward_scale, num_envs, frame_stack

    def paid(self, action):
        return self.args[0] * 100 + self.args[1] * 10 + self.args[2]


class Says(Ten):
    """Prints in each step, also by a C library's way."""

    def paid(self, action):
        print("step", self.t)
        os.write(1, b"a line of C\n")
        return 1.0


class Moves(Ten):
    """Changes the working directory, as simulators do that load their models."""

    def __init__(self):
        super().__init__()
        os.makedirs("elsewhere", exist_ok=True)
        os.chdir("elsewhere")


class Handles(Ten):
    """Takes the signals for itself, as ROS and Ray do, where that is possible."""

    def __init__(self):
        super().__init__()
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, lambda number, frame: None)
            signal.signal(signal.SIGTERM, lambda number, frame: None)


class Leaves(Ten):
    """Exits in its third step, or raises what Ctrl-C raises."""

    def __init__(self, interrupt=0):
        super().__init__()
        self.error = KeyboardInterrupt() if interrupt else SystemExit(3)

    def paid(self, action):
        if self.t == 3:
            raise self.error
        return 1.0
