"""Manifests against Kubernetes' published schemas, and their text."""

from collections.abc import Sequence
from typing import Any

import msgspec

from baton.errors import ConfigError
from baton.planner.deploy.kubernetes import Manifest
from baton.planner.deploy.ray_schema import pod_templates

OLDEST = "1.30"
"""The oldest version that manifests are checked for, beside the newest that the library knows."""
_EXTRA = "install kvbaton[plan]"


def validate(manifests: Sequence[Manifest]) -> tuple[str, ...]:
    """Check every object, unknown fields included; the versions that it was checked for.

    A RayJob is held to the fields of KubeRay, and its pods to those of Kubernetes.

    Raises ConfigError naming object and field, or the extra when the library is missing.
    """
    try:
        import kubernetes_validate
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Kubernetes manifests are checked with {error.name}, which is not installed; {_EXTRA}"
        ) from error
    versions = (OLDEST, kubernetes_validate.latest_version())
    for manifest in [part for one in manifests for part in _parts(one)]:
        for version in versions:
            try:
                kubernetes_validate.validate(manifest, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                name = f"{manifest.get('kind')}/{manifest.get('metadata', {}).get('name')}"
                place = ".".join(str(one) for one in error.path)
                raise ConfigError(
                    f"{name}: not valid for Kubernetes {version}: {place}: {error.message}"
                ) from error
    return versions


def _parts(manifest: Manifest) -> list[Manifest]:
    """What Kubernetes' own schemas can judge of an object."""
    if manifest.get("apiVersion") != "ray.io/v1":
        return [manifest]
    try:
        return pod_templates(manifest)
    except msgspec.ValidationError as error:
        name = f"{manifest.get('kind')}/{manifest.get('metadata', {}).get('name')}"
        raise ConfigError(f"{name}: not valid for KubeRay: {error}") from error


def to_yaml(manifests: Sequence[Manifest], comment: str = "") -> str:
    """All objects as one stream; texts of several lines stay readable."""
    try:
        import yaml
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Kubernetes manifests are written with {error.name}, which is not installed; {_EXTRA}"
        ) from error

    class Dumper(yaml.SafeDumper):  # type: ignore[misc]
        """With block style for what has line breaks, and no aliases for equal parts."""

        def ignore_aliases(self, data: Any) -> bool:
            return True

    def text(dumper: Dumper, value: str) -> Any:
        style = "|" if "\n" in value else None
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    head = "".join(f"# {line}\n" for line in comment.splitlines())
    body = yaml.dump_all(manifests, Dumper=Dumper, sort_keys=False, explicit_start=True)
    return head + str(body)
