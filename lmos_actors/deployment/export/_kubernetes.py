"""Kubernetes manifests: for each group a StatefulSet, a Service, and a PodDisruptionBudget.

A pod is one process, which has the pod's number, from 1 on, and the pod's address in the Service.
"""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING, Any, Final

import yaml
from msgspec import UNSET

from lmos_actors.errors import ConfigError

from ._source import NUMBER, PROBE, USER, Address, dns_name, probe

if TYPE_CHECKING:
    from ..model import Group
    from ._secrets import Secrets
    from ._source import Source

NOTICE: Final = 3
"""Seconds for which a pod that ends still answers, until no Service leads to it any more."""

LONGEST: Final = 52
"""Maximum characters of a StatefulSet's name: a label has 63, with a revision at the end."""

OLDEST: Final = "1.31"
"""The oldest Kubernetes that numbers the pods of a StatefulSet from 1 on."""


def manifests(source: Source) -> dict[str, str]:
    """Return the text of the manifests. Raises FileError for what they cannot express, ConfigError."""
    source.check_containers()
    source.check()
    _note_losses(source)
    for name in source.groups:
        own = _own(source, name)
        if len(own) > LONGEST:
            why = f'"{own}" is longer than the {LONGEST} characters that a StatefulSet may have'
            source.refuse(why, "groups", name)
    source.check()
    try:
        user = int(source.options.user or USER)
    except ValueError:
        raise ConfigError("must be the number of a user, which an image need not know", "--user") from None
    documents = [each for name in source.groups for each in _Group(source, name, user).documents()]
    texts = [yaml.safe_dump(each, sort_keys=False, allow_unicode=True, width=1_000) for each in documents]
    head = "".join(f"# {line}\n" for line in [*source.head("k8s"), f"It needs Kubernetes {OLDEST} or newer."])
    return {f"{dns_name(source.deployment.name)}.yaml": head + "---\n".join(texts)}


def _note_losses(source: Source) -> None:
    source.lost("Kubernetes starts what has ended again without an end: it counts nothing", "groups")
    strategy = source.deployment.launcher.strategy
    if strategy != "one_for_one":
        source.lost(f'"{strategy}": the end of a group means nothing for the others', "launcher", "strategy")
    for name, group in source.groups.items():
        started = [need for need, what in source.needs_of(name).items() if what == "started"]
        if started:
            source.lost(f'"{name}" does not wait for the start of {" and ".join(started)}', "groups", name)
        if group.update.order == "start_first":
            source.lost_key(name, "update", "a StatefulSet stops a pod before it starts the next")
        elif group.update.batch > 1:
            source.lost_key(name, "update", "a StatefulSet replaces one pod after another")
        source.lost_key(name, "backoff", "Kubernetes has pauses of its own between restarts")
        if group.limits.descriptors is not UNSET:
            source.lost_key(name, "limits", "descriptors are those that the machine allows, at most")


class _Group:
    """The manifests of one group."""

    def __init__(self, source: Source, name: str, user: int) -> None:
        self._source = source
        self._name = name
        self._user = user
        self._group: Group = source.groups[name]
        self._plan = source.plans[name]
        self._own = _own(source, name)
        self._address = _address_of(source, self._group)
        self._secrets: Secrets = source.secrets_of(name)

    def documents(self) -> list[dict[str, Any]]:
        """Return the Service, the StatefulSet and the PodDisruptionBudget."""
        port = {"name": "agents", "port": self._address.port, "targetPort": "agents"}
        service = {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,  # agents find each other while their pods become ready
            "selector": self._labels(),
            "ports": [port],
        }
        budget = {"maxUnavailable": self._group.update.batch, "selector": {"matchLabels": self._labels()}}
        return [
            self._document("v1", "Service", service),
            self._document("apps/v1", "StatefulSet", self._set()),
            self._document("policy/v1", "PodDisruptionBudget", budget),
        ]

    def _document(self, version: str, kind: str, spec: dict[str, Any]) -> dict[str, Any]:
        head = {"name": self._own, "labels": self._labels()}
        return {"apiVersion": version, "kind": kind, "metadata": head, "spec": spec}

    def _labels(self) -> dict[str, str]:
        return {
            "app.kubernetes.io/name": dns_name(self._name),
            "app.kubernetes.io/part-of": dns_name(self._source.deployment.name),
        }

    def _set(self) -> dict[str, Any]:
        group = self._group
        made: dict[str, Any] = {
            "serviceName": self._own,
            "replicas": group.replicas,
            "ordinals": {"start": 1},
            "podManagementPolicy": "Parallel",
            "minReadySeconds": ceil(group.update.pause),
            "updateStrategy": {"type": "RollingUpdate"},
            "selector": {"matchLabels": self._labels()},
            "template": {"metadata": {"labels": self._labels()}, "spec": self._pod()},
        }
        claims = [self._claim(name) for name in self._volumes()]
        return made | ({"volumeClaimTemplates": claims} if claims else {})

    def _volumes(self) -> dict[str, str]:
        """Return the mount paths of the persistent volumes by volume name."""
        return {dns_name(place.rpartition("/")[2]): place for place in self._source.volumes_of(self._group)}

    def _claim(self, name: str) -> dict[str, Any]:
        request = {"requests": {"storage": self._source.options.storage}}
        return {
            "metadata": {"name": name},
            "spec": {"accessModes": ["ReadWriteOncePod"], "resources": request},
        }

    # ---- the pod

    def _pod(self) -> dict[str, Any]:
        paths = {"ready": "/readyz", "listening": "/healthz"}
        needs = self._source.needs_of(self._name).items()
        waiting = [self._waiting(need, paths[what]) for need, what in needs if what in paths]
        volumes: list[dict[str, Any]] = [{"name": "tmp", "emptyDir": {}}]
        if self._secrets.files:
            volumes.append(
                {"name": "secrets", "secret": {"secretName": self._secret(), "defaultMode": 0o440}}
            )
        user = self._user
        return {
            "terminationGracePeriodSeconds": ceil(self._plan.shutdown) + NOTICE,
            "automountServiceAccountToken": False,
            "securityContext": {
                "runAsNonRoot": True,
                "runAsUser": user,
                "runAsGroup": user,
                "fsGroup": user,
                "seccompProfile": {"type": "RuntimeDefault"},
            },
            **({"initContainers": waiting} if waiting else {}),
            "containers": [self._container()],
            "volumes": volumes,
        }

    def _container(self) -> dict[str, Any]:
        source = self._source
        mounts = [{"name": "tmp", "mountPath": "/tmp"}]
        mounts += [{"name": name, "mountPath": place} for name, place in self._volumes().items()]
        mounts += [
            {
                "name": "secrets",
                "mountPath": source.placed(path, source.container_root()),
                "subPath": path.name,
            }
            for path in self._secrets.files
        ]
        seconds = ceil(self._group.ready)
        limits = self._group.limits
        most: dict[str, str] = {}
        if limits.processors is not UNSET:
            most["cpu"] = str(limits.processors)
        if limits.memory is not UNSET:
            most["memory"] = str(int(limits.memory))
        return {
            "name": dns_name(self._name),
            "image": source.image(),
            "command": [source.options.command or "lmos-actors"],  # whatever that of the image is
            "args": self._words(),
            "workingDir": source.container_root(),
            "env": self._environment(),
            "ports": [{"name": "agents", "containerPort": self._address.port}],
            "startupProbe": {**self._probe("/healthz"), "periodSeconds": 1, "failureThreshold": seconds},
            "readinessProbe": {**self._probe("/readyz"), "periodSeconds": PROBE, "failureThreshold": 2},
            "livenessProbe": {**self._probe("/healthz"), "periodSeconds": 2 * PROBE, "failureThreshold": 6},
            "lifecycle": {"preStop": {"exec": {"command": ["sleep", str(NOTICE)]}}},
            **({"resources": {"limits": most}} if most else {}),
            "volumeMounts": mounts,
            "securityContext": _closed(),
        }

    def _words(self) -> list[str]:
        source = self._source
        file = source.placed(source.file, source.container_root())
        words = [*map(_escaped, source.words_of(self._name, "", file))]
        words[words.index("--replica") + 1] = "$(REPLICA)"
        words += ["--listen", self._address.listen]
        if self._group.public_url is None:
            scheme = "wss" if self._address.secure else "ws"
            words += ["--public-url", f"{scheme}://$(POD).{self._own}:{self._address.port}"]
        for host in source.hosts_of(self._name):
            there = _address_of(source, source.groups[host])
            scheme = "https" if there.secure else "http"
            words += ["--at", f"{host}={scheme}://{_own(source, host)}:{there.port}"]
        return words

    def _environment(self) -> list[dict[str, Any]]:
        label = "metadata.labels['apps.kubernetes.io/pod-index']"
        made = [
            {"name": "POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {"name": "REPLICA", "valueFrom": {"fieldRef": {"fieldPath": label}}},
        ]
        for key, value in self._group.env.items():
            made.append({"name": key, "value": _escaped(value).replace(f"${NUMBER}", "$(REPLICA)")})
        for name in self._secrets.variables:
            reference = {"name": self._secret(), "key": name}
            made.append({"name": name, "valueFrom": {"secretKeyRef": reference}})
        return made

    def _secret(self) -> str:
        return dns_name(self._source.deployment.name)

    def _probe(self, path: str) -> dict[str, Any]:
        if self._address.asks_certificate:
            return {"tcpSocket": {"port": "agents"}, "timeoutSeconds": PROBE}
        scheme = "HTTPS" if self._address.secure else "HTTP"
        return {"httpGet": {"path": path, "port": "agents", "scheme": scheme}, "timeoutSeconds": PROBE}

    def _waiting(self, need: str, path: str) -> dict[str, Any]:
        """Return a container that exits once another group answers at a path."""
        address = _address_of(self._source, self._source.groups[need])
        asked = probe(address, path, _own(self._source, need))
        return {
            "name": f"wait-for-{dns_name(need)}",
            "image": self._source.image(),
            "command": ["sh", "-c", f'until python3 -c "{asked}" 2>/dev/null; do sleep 1; done'],
            "securityContext": _closed(),
        }


def _closed() -> dict[str, Any]:
    """Return the security context of a container, which allows only what agents need."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


def _own(source: Source, group: str) -> str:
    """Return the name of a resource that is made for a group."""
    return f"{dns_name(source.deployment.name)}-{dns_name(group)}"


def _address_of(source: Source, group: Group) -> Address:
    """Return the address at which the processes of a group listen: at one port, as each has its own pod."""
    first, second = source.address_of(group, 1), source.address_of(group, 2)
    if first.port == second.port:
        return first
    return Address(source.options.port, first.secure, None, first.asks_certificate)


def _escaped(text: str) -> str:
    return text.replace("$", "$$")
