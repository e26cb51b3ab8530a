"""Kubernetes manifests: what the pods of a pool are, by kind; the templates say how that is written."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial

from placement.engines.manifests.pools import Pool
from placement.engines.manifests.templates import render
from topology.base.errors import InputError, called, input_name

MOST_BYTES = 1 << 20
"""Of a ConfigMap: https://kubernetes.io/docs/concepts/configuration/configmap/."""
FOLDER = "/etc/rackplan"
IMAGE, CLAIM, RESOURCE, SIDECAR = "<IMAGE>", "<CLAIM>", "<gpu-resource>", "<ROUTING-SIDECAR-IMAGE>"
QUEUE = "<QUEUE>"
"""What nobody can know but the user: Kubernetes refuses each until it is replaced."""
TOPOLOGY = "rackplan"
"""The object that names the levels of the cluster, where a scheduler reads one."""
PORT, BEHIND = 8000, 8001
"""Where llm-d's router finds a model server, and where one listens behind the sidecar."""
_RESOURCES = {"NVIDIA": "nvidia.com/gpu", "AMD": "amd.com/gpu"}
"""As the device plug-ins of the vendors call a GPU."""
_LONGEST_NAME = 31
"""With ``-prefill`` the 39 characters that Kueue takes of the name of a LeaderWorkerSet."""
_LONGEST_SET = 25
"""Of 45 that Grove takes of the names of a set, a scaling group and a clique: ``prefill-group`` and ``prefill``."""
_CONNECTORS = {"vllm": "nixlv2", "sglang": "sglang"}
"""Engines that llm-d runs, and how their sidecar fetches the prefill."""
_DYNAMO = ("sglang", "vllm", "trtllm")
_PAIRED = ("lws", "llm-d", "kueue", "kai")
"""Kinds that tell a scheduler which pools should share a domain: those of LeaderWorkerSets."""
_COMPONENTS = {
    "both": ("Worker", "worker"),
    "prefill": ("PrefillWorker", "prefill"),
    "decode": ("DecodeWorker", "decode"),
}


def dns_name(text: str) -> str:
    """Return ``text`` as a name that Kubernetes takes: lower case, digits, hyphens."""
    name = re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:_LONGEST_NAME].strip("-")
    return name if name[:1].isalpha() else f"m-{name}".strip("-")


@dataclass(frozen=True, eq=False)
class Pod:
    """The pods of a pool, one a host of each replica.

    Attributes
    ----------
    container:
        Name of the container that serves.
    lines:
        Of the command that starts the engine.
    port, answers_at:
        Where it takes requests, and where every pod answers; None: not every pod does.
    labels, connector:
        Of llm-d: what its router looks for, and how a sidecar fetches the prefill; empty: there is none.
    shared_memory:
        Whether the pod must bring shared memory.
    """

    pool: Pool
    container: str
    image: str
    lines: Sequence[str]
    port: int = 0
    answers_at: int | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    connector: str = ""
    shared_memory: bool = True

    @cached_property
    def files(self) -> dict[str, str]:
        """The files that a pod needs: the plan file, and what the engine reads beside it."""
        launch = replace(self.pool.launch, file=f"{FOLDER}/{self.pool.map_name}")
        return {self.pool.map_name: self.pool.exported.text, **self.pool.engine.files(launch)}

    @property
    def fits(self) -> bool:
        """Whether its files are small enough for a ConfigMap."""
        return sum(len(name) + len(text.encode()) for name, text in self.files.items()) <= MOST_BYTES

    @property
    def script(self) -> str:
        """The command as one of a shell that replaces it."""
        start = "exec env " if re.match(r"[A-Z_]+=", self.lines[0]) else "exec "
        return start + " \\\n  ".join(self.lines) + "\n"

    @property
    def resource(self) -> str:
        """What a device plug-in calls its GPUs."""
        return _RESOURCES.get(self.pool.gpu_vendor, RESOURCE)

    @property
    def gpus(self) -> int:
        """GPUs of a pod."""
        host = self.pool.hosts[0]
        return sum(len(group.devices) for group in self.pool.replicas[0] if host in group.hosts)

    @property
    def hosts(self) -> list[str]:
        """Hosts of all replicas."""
        return sorted({host for group in self.pool.groups for host in group.hosts})

    @property
    def serves_everywhere(self) -> bool:
        """Whether each pod takes requests."""
        return self.pool.engine.serves_everywhere(self.pool.launch)

    @property
    def component(self) -> tuple[str, str]:
        """Name and type of its component in Dynamo."""
        name, kind = _COMPONENTS[self.pool.role]
        return f"{name}{self.pool.number}", kind

    @property
    def unit(self) -> str:
        """Name of its role in Grove and RoleBasedGroup, one of its own."""
        return "-".join(filter(None, (_COMPONENTS[self.pool.role][1], self.pool.number)))


def _numbered(
    pool: Pool,
    image: str,
    port: int = 0,
    labels: Mapping[str, str] | None = None,
    connector: str = "",
    rank: str = "$LWS_WORKER_INDEX",
    address: str = "$LWS_LEADER_ADDRESS",
) -> Pod:
    """Return pods that a controller numbers, which answer at a port; 0: the engine's own."""
    engine, port = pool.engine, port or pool.engine.port
    launch = replace(pool.launch, file=f"{FOLDER}/{pool.map_name}", rank=rank, address=address)
    if reason := engine.cannot_spread(launch):
        raise InputError(f"{input_name('launch')}, {engine.title}: {reason}.")
    lines = [*engine.command(launch), engine.listen(port)]
    answers_at = port if engine.answers_everywhere(launch) else None
    return Pod(pool, engine.name, image, lines, port, answers_at, labels or {}, connector)


def _llm_d(pool: Pool, image: str) -> Pod:
    framework = _framework(pool, tuple(_CONNECTORS), "llm-d")
    behind = pool.role == "decode"
    label = re.sub(r"[^A-Za-z0-9._-]+", "-", pool.launch.model.rpartition("/")[2])[-63:].strip("-._")
    labels = {
        "llm-d.ai/inference-serving": "true",
        "llm-d.ai/model": label,
        "llm-d.ai/role": "prefill" if pool.role == "prefill" else "decode",
        "llm-d.ai/engine-type": framework,
    }
    connector = _CONNECTORS[framework] if behind else ""
    return _numbered(pool, image, BEHIND if behind else PORT, labels, connector)


def _dynamo(pool: Pool, image: str) -> Pod:
    framework = _framework(pool, _DYNAMO, "dynamo")
    launch = replace(pool.launch, file=f"{FOLDER}/{pool.map_name}", module=f"dynamo.{framework}")
    reason = pool.engine.cannot_spread(launch) if framework == "vllm" else ""
    if reason:
        raise InputError(f"{input_name('launch')} dynamo, {pool.engine.title}: {reason}.")
    return Pod(pool, "main", image, pool.engine.command(launch), shared_memory=False)


KUBERNETES: Mapping[str, Callable[[Pool, str], Pod]] = {
    "lws": _numbered,
    "dynamo": _dynamo,
    "llm-d": _llm_d,
    "kueue": _numbered,
    "kai": _numbered,
    "grove": partial(
        _numbered, rank="$GROVE_PCLQ_POD_INDEX", address="$GROVE_PCLQ_NAME-0.$GROVE_HEADLESS_SERVICE"
    ),
    "rbg": partial(_numbered, rank="$RBG_LWP_WORKER_INDEX", address="$RBG_LWP_LEADER_ADDRESS"),
}
"""The kinds of manifests: each has a template of its name, and says what its pods are."""


def manifest(kind: str, pools: Sequence[Pool], image: str) -> tuple[str, list[str]]:
    """Return the manifest of a kind that starts ``pools``, and what a person must do first.

    Raises
    ------
    InputError
        If an engine cannot be started so.
    """
    pods = [KUBERNETES[kind](pool, image or IMAGE) for pool in pools]
    text = render(
        f"{kind}.yaml.j2",
        pods=pods,
        name=(name := dns_name(pools[0].launch.model.rpartition("/")[2])),
        short=name[:_LONGEST_SET].rstrip("-"),
        framework=pools[-1].engine.framework,
        folder=FOLDER,
        claim=CLAIM,
        sidecar=SIDECAR,
        port=PORT,
        behind=BEHIND,
        queue=f"'{QUEUE}'",
        topology=TOPOLOGY,
        packing=next((pool.packing for pool in pools if pool.packing), None),
    )
    return text.removeprefix("---\n"), [*_notes(kind, pods, image), *_notes_of(kind, pools, image)]


def _notes(kind: str, pods: Sequence[Pod], image: str) -> list[str]:
    """Return what a person must do before the manifest starts anything, and what it cannot say."""
    notes = [] if image else [f"{IMAGE} is a placeholder for the image; set {called('image')}"]
    for pod in pods:
        pool = pod.pool
        if not pod.fits:
            size = sum(len(text.encode()) for text in pod.files.values())
            notes.append(
                f"{pool.map_name} has {size:,} bytes, a ConfigMap holds {MOST_BYTES:,}: {CLAIM} is a "
                f"placeholder for a volume claim with {', '.join(pod.files)}"
            )
        if pod.resource == RESOURCE:
            notes.append(
                f"{RESOURCE} is a placeholder for the GPU resource of the {pool.gpu_vendor} device plug-in"
            )
        if not pool.whole_hosts:
            devices = ", ".join(map(str, pool.groups[0].devices))
            notes.append(
                f"{pool.name}: the plan has GPUs {devices} of each host; Kubernetes assigns any free GPUs "
                "in arbitrary order"
            )
        if len(pool.hosts) > 1:
            notes.append(
                f"{pool.name}: pods are numbered like hosts of the plan, but Kubernetes chooses the host "
                "of each pod; "
                + (
                    pool.packing.words
                    if pool.packing
                    else "all must be linked as in the plan, which is not enforced"
                )
            )
        if pool.shared is not None:
            how = "preferred" if kind in _PAIRED else "not enforced"
            notes.append(
                f"{pool.name}: pods should share a {pool.shared.name} with {pool.beside}, so that caches stay on its "
                f"links (label {pool.shared.label}; {how})"
            )
    if not any(pod.pool.named for pod in pods):
        notes.append(
            f"host names are those of the plan's cluster; use {called('hosts')} to pin pods to your hosts"
        )
    return list(dict.fromkeys(notes))


def _notes_of(kind: str, pools: Sequence[Pool], image: str) -> list[str]:
    """Return what else a kind of manifest needs."""
    if kind == "dynamo":
        image_note = (
            "an image with a tag that is not a Dynamo version needs runtimeVersionOverride in each component"
            if image
            else (
                "the image must be a Dynamo image with the engine; a tag that is not a version needs "
                "runtimeVersionOverride"
            )
        )
        level = f"Grove needs a topology {TOPOLOGY} with this level as its domain: see the launch kind grove"
        return [image_note, *[level] * any(pool.packing for pool in pools)]
    notes = []
    if kind in ("kueue", "kai", "grove"):
        notes.append(f"{QUEUE} is a placeholder for the queue that admits the pods")
    if kind == "kueue" and any(pool.packing for pool in pools):
        notes.append(
            f"topologyName of the ResourceFlavor must be {TOPOLOGY}, or adapt the labels to your Topology"
        )
    if kind == "llm-d":
        notes.append(
            "llm-d's router (InferencePool, gateway) is installed separately; it finds the pods by these labels"
        )
        if any(pool.role == "decode" for pool in pools):
            notes.append(f"{SIDECAR} is a placeholder for llm-d's sidecar image")
    return notes


def _framework(pool: Pool, known: Sequence[str], kind: str) -> str:
    """Return the framework of a pool's engine, which ``kind`` must run."""
    if pool.engine.framework in known:
        return pool.engine.framework
    raise InputError(
        f"it runs {', '.join(known)}, not {pool.engine.title}; use lws or slurm instead.",
        field="launch",
        value=kind,
    )
