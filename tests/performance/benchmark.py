"""What the benchmarks of `sluice run` share: its programs, a home of their own, times, and evidence that must verify.

Every figure is from the exec of a program to its exit. By then a run of ours has
sealed its evidence and its gateway is gone; `Home.verify` lets `sluice audit
verify` say so for all of them, after the measuring.
"""

import os
import pathlib
import pwd
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
HERE = ROOT / "tests/performance"
# Kernel work that one start leaves behind makes the next one's waits shorter.
REST_SECONDS = 0.1
NETWORK = "version: 1\nnet: {enabled: true, allow: [up.test]}\n"
TEST_USER = "sluice-test"
PROGRAMS = ["sluice", "sluice-gateway", "sluice-init", "sluice-launch", "sluice-probe"]


def said(*words):
    """What a program printed."""
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def program():
    """`sluice`: what SLUICE names, else built for this."""
    named = os.environ.get("SLUICE")
    return named or said(ROOT / "scripts/build-static", "sluice-gateway", "sluice-inside", "sluice-cli").split()[-1]


class Home:
    """A project, a state and policies for runs; with `user`, they are that user's and so are the runs."""

    def __init__(self, sluice, user=None):
        self.user = user and pwd.getpwnam(user)
        self._folder = tempfile.TemporaryDirectory(prefix="sluice-benchmark-")
        self.folder = pathlib.Path(self._folder.name)
        self.folder.chmod(0o755)
        self.project = self.folder / "project"
        for made in (self.project, self.folder / "state"):
            made.mkdir()
            self._give(made)
        ours = lambda name: name.startswith("SLUICE_") and not name.endswith("_PROGRAM")
        kept = {name: value for name, value in os.environ.items() if not ours(name)}
        self.environment = {**kept, "HOME": str(self.folder), "XDG_STATE_HOME": str(self.folder / "state")}
        self.before = []
        if self.user:
            self._become()
        self.sluice = self._reachable(sluice)
        self.network = self.write("network.yaml", NETWORK)

    def write(self, name, text):
        path = self.folder / name
        path.write_text(text)
        return str(path)

    def run(self, *flags, command=("true",)):
        """The words of a `sluice run`."""
        return [*self.before, self.sluice, "run", *flags, "--", *command]

    def others(self, *words):
        """The words of another program, as the user of these runs."""
        return [*self.before, *words]

    def verify(self):
        """Ends everything unless the evidence of each run is complete and unchanged; how many there are."""
        words = [*self.before, self.sluice, "audit", "verify"]
        verified = subprocess.run(words, env=self.environment, cwd=self.project, capture_output=True, text=True)
        if verified.returncode != 0:
            sys.exit(f"the evidence does not verify: {verified.stdout}{verified.stderr}")
        return len(list((self.folder / "state/sluice/runs").iterdir()))

    def _become(self):
        runtime = pathlib.Path(f"/run/user/{self.user.pw_uid}")
        if not runtime.exists():
            # Who logs in has one made for them; nobody logs in here.
            runtime.mkdir(mode=0o700, parents=True)
            self._give(runtime)
        # Podman's store is in the user's own home.
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": self.user.pw_dir,
            "XDG_RUNTIME_DIR": str(runtime),
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        ids = ["--reuid", str(self.user.pw_uid), "--regid", str(self.user.pw_gid)]
        self.before = ["setpriv", *ids, "--clear-groups", "--"]

    def _give(self, path):
        if self.user:
            os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def _reachable(self, sluice):
        """The programs may be in somebody's home."""
        reached = subprocess.run(self.others("test", "-x", sluice), env=self.environment)
        if reached.returncode == 0:
            return sluice
        for name in PROGRAMS:
            shutil.copy(pathlib.Path(sluice).with_name(name), self.folder)
        return str(self.folder / "sluice")


def took(words, home, environment=None):
    """Milliseconds from exec to exit, and what it printed; begun after a rest."""
    time.sleep(REST_SECONDS)
    environment = {**home.environment, **(environment or {})}
    begun = time.perf_counter()
    ran = subprocess.run(
        words, cwd=home.project, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True
    )
    wall = (time.perf_counter() - begun) * 1000
    if ran.returncode != 0:
        sys.exit(f"{' '.join(words)} failed: {ran.stderr}")
    return wall, ran.stdout


def at_once(count, words, home):
    """Starts so many at once; milliseconds that all took together, and each of them."""
    time.sleep(1)
    begun, ended, started = {}, {}, []
    with tempfile.TemporaryFile("w+") as errors:
        for _ in range(count):
            moment = time.perf_counter()
            started.append(
                subprocess.Popen(
                    words,
                    cwd=home.project,
                    env=home.environment,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                )
            )
            begun[started[-1].pid] = moment
        failed = 0
        while len(ended) < count:
            process, status = os.wait()
            ended[process] = time.perf_counter()
            failed += status != 0
        for process in started:
            process.returncode = 0
        if failed:
            errors.seek(0)
            sys.exit(f"{failed} of {count} failed: {' '.join(words)}: {errors.read()[-2000:]}")
    all_of_them = max(ended.values()) - min(begun.values())
    each = [(ended[process] - moment) * 1000 for process, moment in begun.items()]
    return all_of_them * 1000, each


def load():
    """What the machine had to do before we came."""
    return f"load {os.getloadavg()[0]:.1f}"


median = statistics.median
# The mounts and namespaces of a sandbox of ours that has the image `host`.
BUBBLEWRAP = """bwrap --unshare-all --die-with-parent --new-session --hostname sandbox --cap-drop ALL
    --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64
    --symlink usr/sbin /sbin --ro-bind-try /etc/ld.so.cache /etc/ld.so.cache
    --ro-bind-try /etc/alternatives /etc/alternatives --ro-bind-try /etc/localtime /etc/localtime
    --ro-bind-try /etc/ssl/certs /etc/ssl/certs --proc /proc --dev /dev --tmpfs /dev/shm
    --tmpfs /tmp --tmpfs /run --tmpfs /home/agent --remount-ro / --chdir /home/agent /bin/true""".split()
