"""A worker of several pipeline stages: a process for each, driven step by step by the worker."""

from baton.runtime.pipeline.pipeline_engine import PipelineEngine
from baton.runtime.pipeline.step_engine import StepEngine

__all__ = ["PipelineEngine", "StepEngine"]
