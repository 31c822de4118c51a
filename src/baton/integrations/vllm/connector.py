"""`BatonConnector`: vLLM's connector interface on the two halves. vLLM is imported here only.

--kv-transfer-config '{"kv_connector": "BatonConnector",
  "kv_connector_module_path": "baton.integrations.vllm.connector", "kv_role": "kv_producer",
  "kv_connector_extra_config": {"key_file": "...", "worker_id": "p0", "port": 7501}}'
"""

from typing import Any

from vllm import __version__ as vllm_version
from vllm.distributed import get_tensor_model_parallel_rank, get_tp_group
from vllm.distributed.kv_transfer.kv_connector.utils import get_current_attn_backends
from vllm.distributed.kv_transfer.kv_connector.v1.base import (
    KVConnectorBase_V1,
    KVConnectorMetadata,
    KVConnectorRole,
    KVConnectorTransferResults,
)

from baton.integrations.vllm import facts
from baton.integrations.vllm.keys import load_member
from baton.integrations.vllm.memory import LayerView
from baton.integrations.vllm.scheduler_side import RequestView, SchedulerSide
from baton.integrations.vllm.settings import read_settings
from baton.integrations.vllm.support import require_supported
from baton.integrations.vllm.worker_side import WorkerSide, new_epoch


class BatonMetadata(KVConnectorMetadata):  # type: ignore[misc]
    """The orders of one step, encoded."""

    def __init__(self, payload: bytes) -> None:
        self.payload = payload


class BatonConnector(KVConnectorBase_V1):  # type: ignore[misc]
    """Published or nothing: vLLM schedules a request on loaded blocks once they are proven."""

    def __init__(self, vllm_config: Any, role: KVConnectorRole, kv_cache_config: Any) -> None:
        """Raises ConfigError for settings that cannot work."""
        super().__init__(vllm_config, role, kv_cache_config)
        transfer = vllm_config.kv_transfer_config
        self._settings = read_settings(dict(transfer.kv_connector_extra_config))
        self._keys = load_member(self._settings.key_file)
        self._worker: WorkerSide | None = None
        self._scheduler: SchedulerSide | None = None
        self._prompts: dict[str, tuple[int, ...]] = {}
        """Of streamed requests: vLLM names their tokens once only."""
        if role is KVConnectorRole.SCHEDULER:
            self._scheduler = SchedulerSide(
                self._keys.verifier(),
                vllm_config.cache_config.block_size,
                recomputes=transfer.kv_load_failure_policy == "recompute",
                can_send=transfer.is_kv_producer,
            )

    # -- scheduler -----------------------------------------------------------------------------

    def on_new_request(self, request: Any) -> None:
        """See the base class."""
        assert self._scheduler is not None
        self._scheduler.on_new(_view(request))

    def get_num_new_matched_tokens(
        self, request: Any, num_computed_tokens: int
    ) -> tuple[int | None, bool]:
        """See the base class."""
        assert self._scheduler is not None
        count = self._scheduler.num_external(_view(request), num_computed_tokens)
        return count, bool(count)

    def update_state_after_alloc(self, request: Any, blocks: Any, num_external_tokens: int) -> None:
        """See the base class."""
        assert self._scheduler is not None
        block_ids = blocks.get_block_ids()[0]
        self._scheduler.on_allocated(_view(request), block_ids, num_external_tokens)

    def build_connector_meta(self, scheduler_output: Any) -> KVConnectorMetadata:
        """See the base class."""
        scheduler = self._scheduler
        assert scheduler is not None
        for vllm_id in scheduler_output.preempted_req_ids or ():
            scheduler.on_preempted(vllm_id)
        scheduled = scheduler_output.num_scheduled_tokens
        for vllm_id in scheduler.streams():
            if vllm_id in scheduled:
                self._stream(vllm_id, scheduler_output, scheduled[vllm_id])
        is_idle = not scheduler_output.total_num_scheduled_tokens
        return BatonMetadata(scheduler.take(is_idle=is_idle))

    def _stream(self, vllm_id: str, scheduler_output: Any, num_scheduled: int) -> None:
        assert self._scheduler is not None and self._kv_cache_manager is not None
        (block_ids,) = self._kv_cache_manager.get_block_ids(vllm_id)
        for new in scheduler_output.scheduled_new_reqs:
            if new.req_id == vllm_id:
                start = new.num_computed_tokens
                self._prompts[vllm_id] = tuple(new.prompt_token_ids)
                break
        else:
            cached = scheduler_output.scheduled_cached_reqs
            start = cached.num_computed_tokens[cached.req_ids.index(vllm_id)]
        view = RequestView(vllm_id=vllm_id, token_ids=self._prompts[vllm_id])
        self._scheduler.on_step(view, block_ids, start, start + num_scheduled)

    def update_connector_output(self, connector_output: Any) -> None:
        """See the base class."""
        assert self._scheduler is not None
        self._scheduler.on_received(tuple(connector_output.finished_recving or ()))

    def request_finished(
        self, request: Any, block_ids: list[int]
    ) -> tuple[bool, dict[str, Any] | None]:
        """See the base class."""
        assert self._scheduler is not None
        self._prompts.pop(request.request_id, None)
        return self._scheduler.on_finished(_view(request), block_ids)

    def has_pending_push_work(self) -> bool:
        """See the base class: orders that no step has carried yet keep the engine going."""
        return self._scheduler is not None and self._scheduler.has_orders

    # -- worker --------------------------------------------------------------------------------

    def register_kv_caches(self, kv_caches: dict[str, Any]) -> None:
        """See the base class. Raises ConfigError for an engine outside of the support matrix."""
        layers = [_layer(name, tensor) for name, tensor in kv_caches.items()]
        found = facts.support_facts(
            self._vllm_config,
            self._kv_cache_config,
            self._settings,
            version=vllm_version,
            backend=",".join(
                sorted({used.get_name() for used in get_current_attn_backends(self._vllm_config)})
            ),
        )
        require_supported(found)
        info = facts.connector_info(
            self._vllm_config,
            found,
            self._settings,
            layers,
            epoch=get_tp_group().broadcast_object(new_epoch()),  # a life is that of all ranks
            rank=get_tensor_model_parallel_rank(),
        )
        self._worker = WorkerSide(info, self._settings, self._keys, layers)

    def bind_connector_metadata(self, connector_metadata: KVConnectorMetadata) -> None:
        """See the base class: orders go out before the step, so that its layers can stream."""
        super().bind_connector_metadata(connector_metadata)
        if self._worker is not None and isinstance(connector_metadata, BatonMetadata):
            self._worker.begin_step(connector_metadata.payload)

    def start_load_kv(self, forward_context: Any, **kwargs: Any) -> None:
        """Loads began with the metadata."""

    def wait_for_layer_load(self, layer_name: str) -> None:
        """A request is scheduled only once all of its layers are published."""

    def save_kv_layer(
        self, layer_name: str, kv_layer: Any, attn_metadata: Any, **kwargs: Any
    ) -> None:
        """See the base class."""
        if self._worker is not None:
            self._worker.layer_written(layer_name)

    def wait_for_save(self) -> None:
        """The step is over; pushes go on by themselves, from blocks that vLLM keeps."""
        if self._worker is not None:
            self._worker.end_step()

    def get_transfer_results(self, finished_req_ids: set[str]) -> KVConnectorTransferResults:
        """See the base class."""
        if self._worker is None:
            return KVConnectorTransferResults()
        sent, received, _ = self._worker.take_ended()
        return KVConnectorTransferResults(finished_sending=sent, finished_recving=received)

    def get_block_ids_with_load_errors(self) -> set[int]:
        """See the base class: failures are told by block, so that what is here already stays."""
        return self._worker.take_failed_blocks() if self._worker is not None else set()

    def shutdown(self) -> None:
        """See the base class."""
        if self._worker is not None:
            self._worker.close()


def _view(request: Any) -> RequestView:
    status = request.status.name
    return RequestView(
        vllm_id=request.request_id,
        token_ids=tuple(request.prompt_token_ids),
        output_token_ids=tuple(request.output_token_ids),
        is_stopped=status in ("FINISHED_LENGTH_CAPPED", "FINISHED_STOPPED"),
        params=request.kv_transfer_params,
    )


def _layer(name: str, tensor: Any) -> LayerView:
    size = tensor.element_size()
    return LayerView(
        name=name,
        address=tensor.data_ptr(),
        shape=tuple(tensor.shape),
        stride_nbytes=tuple(size * stride for stride in tensor.stride()),
        item_nbytes=size,
    )
