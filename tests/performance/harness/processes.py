"""Child processes. Each has a session of its own, so that exactly what was started is ended."""

import os
import pathlib
import re
import signal
import socket
import subprocess
import time


class Processes:
    """What was started here and has not been ended yet."""

    def __init__(self, niceness=0):
        self.niceness = niceness
        self._running = []

    def start(self, command, log, environment=None, folder=None):
        """Starts a program whose output goes to the file `log`."""
        with open(log, "ab") as output:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=environment,
                cwd=folder,
                start_new_session=True,
                preexec_fn=self._set_priority,
            )
        self._running.append(process)
        return process

    def output(self, command, seconds):
        """What a program printed, as (exit status, stdout, stderr)."""
        ran = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=seconds,
            start_new_session=True,
            preexec_fn=self._set_priority,
        )
        return ran.returncode, ran.stdout, ran.stderr

    def end(self, process):
        """Asks the process and all that it started to end, and then insists."""
        if process in self._running:
            self._running.remove(process)
        for asked, seconds in ((signal.SIGTERM, 3), (signal.SIGKILL, 5)):
            try:
                os.killpg(process.pid, asked)
                process.wait(seconds)
            except ProcessLookupError:
                break
            except subprocess.TimeoutExpired:
                continue
            # Children may need a moment longer than the process that was waited for.
            time.sleep(0.2)
        process.poll()

    def end_all(self):
        for process in list(self._running):
            self.end(process)

    def _set_priority(self):
        """Within the child. Niceness counts only inside a session where the kernel groups
        processes by session, so the session's own weight is set too."""
        if not self.niceness:
            return
        os.nice(self.niceness)
        try:
            pathlib.Path("/proc/self/autogroup").write_text(str(self.niceness))
        except OSError:
            pass


def check_free(address, port):
    """Fails if something listens there: its answers would pass for those of what is started."""
    try:
        socket.create_connection((address, port), 0.5).close()
    except OSError:
        return
    raise RuntimeError(f"{address}:{port} is taken; is another measurement going on?")


def wait_for_port(address, port, seconds, process):
    """Returns when something listens there; fails when `process` has ended or time is up."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if process.poll() is not None:
            raise RuntimeError(f"it ended with status {process.returncode} before it listened")
        try:
            socket.create_connection((address, port), 0.5).close()
            return
        except OSError:
            time.sleep(0.05)
    raise RuntimeError(f"nothing listens on {address}:{port} after {seconds} s")


def tree_rss_kib(root):
    """Resident memory of a process and all that it started."""
    children = {}
    for folder in pathlib.Path("/proc").iterdir():
        if folder.name.isdigit():
            children.setdefault(_parent(folder), []).append(int(folder.name))
    total, left = 0, [root]
    while left:
        process = left.pop()
        left += children.get(process, [])
        resident = re.search(r"VmRSS:\s+(\d+)", _read(f"/proc/{process}/status"))
        total += int(resident[1]) if resident else 0
    return total


def _parent(folder):
    """The parent of a process; none if it is gone."""
    # A program's name may have brackets and blanks.
    _, _, fields = _read(folder / "stat").rpartition(") ")
    return int(fields.split()[1]) if fields else None


def _read(path):
    try:
        return pathlib.Path(path).read_text()
    except OSError:
        return ""
