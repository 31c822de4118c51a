"""The fields of KubeRay's RayJob (ray.io/v1) that a manifest may have, and the pods in it."""

from typing import Any, Literal

import msgspec


class _Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A part of a manifest: what KubeRay does not know is refused."""


class HeadGroup(_Part, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`headGroupSpec`."""

    ray_start_params: dict[str, str]
    template: dict[str, Any]
    service_type: Literal["ClusterIP", "NodePort", "LoadBalancer"] | None = None
    head_service: dict[str, Any] | None = None
    enable_ingress: bool | None = None


class WorkerGroup(_Part, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """One of `workerGroupSpecs`."""

    group_name: str
    replicas: int
    min_replicas: int
    max_replicas: int
    ray_start_params: dict[str, str]
    template: dict[str, Any]
    num_of_hosts: int = 1


class RayCluster(_Part, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`rayClusterSpec`."""

    head_group_spec: HeadGroup
    worker_group_specs: list[WorkerGroup]
    ray_version: str
    enable_in_tree_autoscaling: bool | None = None


class RayJobSpec(_Part, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """`spec` of a RayJob."""

    entrypoint: str
    ray_cluster_spec: RayCluster
    runtime_env_yaml: str = msgspec.field(name="runtimeEnvYAML", default="")
    submission_mode: Literal["K8sJobMode", "HTTPMode", "InteractiveMode"] = "K8sJobMode"
    shutdown_after_job_finishes: bool = False
    ttl_seconds_after_finished: int = 0
    backoff_limit: int = 0


class RayJob(_Part, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """The whole object."""

    api_version: Literal["ray.io/v1"]
    kind: Literal["RayJob"]
    metadata: dict[str, Any]
    spec: RayJobSpec


def pod_templates(manifest: dict[str, Any]) -> list[dict[str, Any]]:
    """The pods of a RayJob as objects of Kubernetes itself.

    Raises msgspec.ValidationError naming the field that KubeRay does not know or lacks.
    """
    job = msgspec.convert(manifest, RayJob)
    cluster = job.spec.ray_cluster_spec
    groups = {"head": cluster.head_group_spec.template}
    groups |= {group.group_name: group.template for group in cluster.worker_group_specs}
    return [
        {
            "apiVersion": "v1",
            "kind": "PodTemplate",
            "metadata": {"name": f"{job.metadata['name']}-{name}"},
            "template": template,
        }
        for name, template in groups.items()
    ]
