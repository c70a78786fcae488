"""The proxies: one TOML file each, in `proxies/`. README.md says what stands in them."""

import dataclasses
import os
import pathlib
import re
import shutil
import subprocess
import time
import tomllib

from processes import check_free, wait_for_port

HERE = pathlib.Path(__file__).resolve().parent
PROXY_ADDRESS = "127.0.0.1"
PROXY_VARIABLES = ["http_proxy", "https_proxy", "all_proxy"]


@dataclasses.dataclass
class Proxy:
    """A proxy as it is described; `direct` has nothing but its name."""

    name: str
    description: dict = dataclasses.field(default_factory=dict)

    @property
    def abilities(self):
        if self.is_direct:
            return {"upload", "h2"}
        return {"upload", *self.description.get("has", [])} - set(self.description.get("lacks", []))

    @property
    def skipped(self):
        """Workloads that are left out."""
        return self.description.get("skip", [])

    @property
    def sizes(self):
        """Sizes of its own, for a slow one."""
        return self.description.get("sizes", {})

    @property
    def is_direct(self):
        return not self.description

    def start(self, environment, processes):
        """Starts it in a fresh folder, and returns it once it listens."""
        if self.is_direct:
            return StartedProxy()
        port = self.description["port"]
        if "attached" in self.description:
            authorities = [self.description["ca"]] if self.description.get("ca") else []
            return StartedProxy(None, self.description.get("pid"), f"{PROXY_ADDRESS}:{port}", authorities)
        check_free(PROXY_ADDRESS, port)
        work = self._fresh_folder(environment)
        fill = lambda text: filled(text, environment.placeholders | {"work": str(work), "port": str(port)})
        for name, text in self.description.get("files", {}).items():
            (work / name).write_text(fill(text))
        variables = without_proxies(os.environ) | {
            name: fill(value) for name, value in self.description.get("env", {}).items()
        }
        for command in self.description.get("setup", []):
            run_setup(fill(command), work, variables)
        command = environment.entered("sh", "-c", "exec " + fill(self.description["start"]))
        process = processes.start(command, work / "stdout.log", variables, work)
        try:
            wait_for_port(PROXY_ADDRESS, port, 20, process)
            time.sleep(self.description.get("settle", 0.5))
            authorities = [only_match(fill(self.description["ca"]))] if "ca" in self.description else []
        except RuntimeError as why:
            processes.end(process)
            raise RuntimeError(f"{why}; its log: {last_lines(work / 'stdout.log')}") from why
        return StartedProxy(process, process.pid, f"{PROXY_ADDRESS}:{port}", authorities)

    def _fresh_folder(self, environment):
        work = environment.work / self.name
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        # Some proxies drop their privileges and write there as somebody else.
        work.chmod(0o777)
        return work


@dataclasses.dataclass
class StartedProxy:
    """How a load generator reaches it, and whom it must trust; of a direct connection, nothing."""

    process: subprocess.Popen | None = None
    pid: int | None = None
    address: str | None = None
    authorities: list = dataclasses.field(default_factory=list)


def described():
    """Every proxy that is described, by name, and the direct connection."""
    known = {"direct": Proxy("direct")}
    for file in sorted((HERE / "proxies").glob("*.toml")):
        description = tomllib.loads(file.read_text())
        known[description["name"]] = Proxy(description["name"], description)
    return known


def filled(text, placeholders):
    """The text with a value for each {{placeholder}}."""
    return re.sub(r"\{\{(\w+)\}\}", lambda found: placeholders[found[1]], text)


def without_proxies(variables):
    """Variables without those that would send a proxy's own requests elsewhere."""
    return {name: value for name, value in variables.items() if name.lower() not in PROXY_VARIABLES}


def run_setup(command, folder, variables):
    ran = subprocess.run(["sh", "-c", command], cwd=folder, env=variables, capture_output=True, text=True)
    if ran.returncode:
        raise RuntimeError(f"`{command}` failed: {(ran.stdout + ran.stderr)[-300:]}")


def only_match(pattern):
    """The file that a pattern names, such as a CA that the proxy has just made."""
    matches = sorted(pathlib.Path("/").glob(pattern.lstrip("/")))
    if not matches:
        raise RuntimeError(f"there is no {pattern}, the CA of its leaves")
    return str(matches[0])


def last_lines(log):
    """The end of a log, on one line."""
    return " / ".join(log.read_text(errors="replace").splitlines()[-5:]) or "empty"
