"""Processes of the set-up: PostgreSQL with a standby, replicas of samewire, and Envoy."""

import asyncio
import glob
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request

import yaml


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def run(*command):
    """Runs a command to its end; PostgreSQL's as a user who is not root. What a server writes goes to a file."""
    if os.getuid() == 0 and "/postgresql/" in command[0]:
        command = ("runuser", "-u", "postgres", "--", *command)
    done = subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, cwd="/")
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")


class Database:
    """A PostgreSQL and its standby, which takes over when the first is killed."""

    def __init__(self, folder):
        self.bin = sorted(glob.glob("/usr/lib/postgresql/*/bin"))[-1]
        self.folder = folder
        self.ports = [free_port(), free_port()]
        if os.getuid() == 0:
            shutil.chown(folder, "postgres")

    def data(self, at):
        return str(self.folder / f"data{at}")

    def start(self):
        run(f"{self.bin}/initdb", "-D", self.data(0), "-A", "trust", "-U", "samewire", "-E", "UTF8", "--locale=C", "--no-sync")
        self.begin(0)
        address = f"host=127.0.0.1 port={self.ports[0]} user=samewire"
        run(f"{self.bin}/pg_basebackup", "-d", address, "-D", self.data(1), "-R", "-X", "stream", "-c", "fast")
        self.begin(1)

    def begin(self, at):
        options = f"-p {self.ports[at]} -h 127.0.0.1 -k {self.folder} -c fsync=off -c max_connections=100 -c synchronous_commit=on"
        run(f"{self.bin}/pg_ctl", "-D", self.data(at), "-o", options, "-l", f"{self.folder}/log{at}", "-w", "start")

    def wait_for_standby(self):
        """From here on what is committed is on the standby, too."""
        for setting in ("synchronous_standby_names = '*'",):
            query = ("-h", "127.0.0.1", "-p", str(self.ports[0]), "-U", "samewire", "-d", "postgres", "-c")
            run(f"{self.bin}/psql", *query, f"alter system set {setting}")
            run(f"{self.bin}/psql", *query, "select pg_reload_conf()")

    def restart(self):
        run(f"{self.bin}/pg_ctl", "-D", self.data(0), "-m", "immediate", "-w", "restart")

    def fail_over(self):
        run(f"{self.bin}/pg_ctl", "-D", self.data(0), "-m", "immediate", "-w", "stop")
        run(f"{self.bin}/pg_ctl", "-D", self.data(1), "-w", "promote")

    def stop(self):
        for at in (0, 1):
            if pathlib.Path(self.data(at), "postmaster.pid").exists():
                run(f"{self.bin}/pg_ctl", "-D", self.data(at), "-m", "immediate", "-w", "stop")

    @property
    def address(self):
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"postgres://samewire@{hosts}/postgres?target_session_attrs=read-write"


class Replica:
    """A samewire on its own address, whose ports are those of all replicas."""

    def __init__(self, number, ports, engine, database, folder):
        self.host = f"127.0.0.{number}"
        self.proxy, self.admin = ports
        self.log = folder / f"samewire{number}.log"
        self.arguments = [
            "serve", "--listen", f"{self.host}:{self.proxy}", "--admin-listen", f"{self.host}:{self.admin}",
            "--upstream", f"http://127.0.0.1:{engine}", "--engine", "vllm", "--store", database,
        ]
        self.process = None

    def start(self, binary):
        environment = {
            "SAMEWIRE_TIMEOUTS__SETTLE": "5", "SAMEWIRE_TIMEOUTS__DRAIN": "60", "SAMEWIRE_TIMEOUTS__BACKGROUND_LEASE": "3",
            "SAMEWIRE_TIMEOUTS__BACKGROUND_HEARTBEAT": "1", "SAMEWIRE_HEALTH__INTERVAL": "0.5",
        }
        with self.log.open("a") as log:
            self.process = subprocess.Popen([binary, *self.arguments], env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def ask(self, method, path):
        request = urllib.request.Request(f"http://{self.host}:{self.admin}{path}", method=method)
        with urllib.request.urlopen(request, timeout=100) as answer:
            return answer.read().decode()

    async def wait_until_ready(self):
        def is_ready():
            if self.process.poll() is not None:
                raise SystemExit(f"samewire has ended: {self.log.read_text()}")
            return self.ask("GET", "/readyz") is not None
        await until("a replica is ready", lambda: silent(is_ready))

    def requests(self):
        """Chat requests that have ended here."""
        lines = self.ask("GET", "/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith('samewire_requests_total{route="chat"'))

    def running(self):
        """Requests that an engine answers here now."""
        lines = self.ask("GET", "/metrics").splitlines()
        return sum(float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith("samewire_upstream_active_streams{"))

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def stop(self):
        """As a service manager stops it: it drains, and ends when the last answer has."""
        self.process.send_signal(signal.SIGTERM)
        self.process.wait()


class Envoy:
    """Envoy with config/envoy.yaml, in which only addresses and the certificate are replaced."""

    def __init__(self, binary, replicas, folder):
        self.binary, self.folder = binary, folder
        self.port, self.admin = free_port(), free_port()
        certificate = ("-keyout", f"{folder}/tls.key", "-out", f"{folder}/tls.crt", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost")
        run("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", *certificate)
        config = yaml.safe_load(pathlib.Path("config/envoy.yaml").read_text())
        [listener], [cluster] = config["static_resources"]["listeners"], config["static_resources"]["clusters"]
        listener["address"]["socket_address"] = {"address": "127.0.0.1", "port_value": self.port}
        context = listener["filter_chains"][0]["transport_socket"]["typed_config"]["common_tls_context"]
        context["tls_certificates"] = [{"certificate_chain": {"filename": f"{folder}/tls.crt"}, "private_key": {"filename": f"{folder}/tls.key"}}]
        [endpoints] = cluster["load_assignment"]["endpoints"]
        [pattern] = endpoints["lb_endpoints"]
        health = pattern["endpoint"]["health_check_config"]
        endpoints["lb_endpoints"] = [
            {"endpoint": {
                "address": {"socket_address": {"address": replica.host, "port_value": replica.proxy}},
                "health_check_config": {**health, "port_value": replica.admin},
            }}
            for replica in replicas
        ]
        config["admin"]["address"]["socket_address"]["port_value"] = self.admin
        (folder / "envoy.yaml").write_text(yaml.safe_dump(config))
        self.process = None

    def start(self):
        with (self.folder / "envoy.log").open("w") as log:
            command = [self.binary, "-c", f"{self.folder}/envoy.yaml", "--concurrency", "1", "--disable-hot-restart", "-l", "warning"]
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def healthy(self):
        """Hosts that get requests."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.admin}/clusters?format=json", timeout=10) as answer:
            hosts = yaml.safe_load(answer.read())["cluster_statuses"][0].get("host_statuses", [])
        good = [one for one in hosts if one["health_status"] == {"eds_health_status": "HEALTHY"}]
        return {one["address"]["socket_address"]["address"] for one in good}


def silent(function):
    """Returns what a function returns, and false if it fails to connect or is refused."""
    try:
        return function()
    except OSError:
        return False


async def until(what, condition, seconds=30):
    for _ in range(seconds * 20):
        if await asyncio.to_thread(condition):
            return
        await asyncio.sleep(0.05)
    print(f"waited in vain until {what}", file=sys.stderr)
    raise SystemExit(1)
