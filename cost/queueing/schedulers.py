"""How the engines' schedulers fill a step, by their defaults."""

from __future__ import annotations

from dataclasses import dataclass

from cost.quantity import Quantity


@dataclass(frozen=True)
class Scheduler:
    """What an engine puts into a step.

    Attributes
    ----------
    mixes:
        Whether prompts share a step with sequences that decode; else they go first, in steps of their own.
    tokens:
        Tokens that an attention group takes in a step: those that decode, then chunks of prompts.
    sequences:
        Sequences of an attention group at a time.
    reserved:
        Part of its answer that a request has to find room for in the KV cache before it starts; where the rest finds
        none, the request that started last is preempted and computed again.
    states:
        Copies of its state that a request of a model with linear attention takes of the memory kept for states
        (:data:`cost.memory.sizes.STATES_OVER_CACHE`); 0: one, wherever there is room.
    pads:
        Whether a step that decodes runs at the next size of a CUDA graph.
    """

    mixes: bool
    tokens: int
    sequences: int
    reserved: float
    states: float = 0.0
    pads: bool = False

    def held(self, isl: Quantity, osl: Quantity) -> Quantity:
        """Tokens that a request takes of the KV cache on average, what it reserves among them."""
        return isl + osl * (1 + self.reserved) / 2


SCHEDULERS = {
    # vllm/config/scheduler.py and engine/arg_utils.py of 0.19: chunked prefill, max_num_batched_tokens 8192 and
    # max_num_seqs 1024 of an API server on chips of 70 GB and more
    "vllm": Scheduler(mixes=True, tokens=8192, sequences=1024, reserved=0.0),
    # sglang/srt/server_args.py of 0.5: chunked_prefill_size 8192, no mixed chunks; max_running_requests at most 4096;
    # new_token_ratio falls from 0.7 to 0.098; 3 states of a running request, 2 more with the overlap schedule and its
    # extra buffer (MAMBA_CACHE_SIZE_MAX_RUNNING_REQUESTS_RATIO)
    "sglang": Scheduler(mixes=False, tokens=8192, sequences=4096, reserved=0.1, states=5.0),
    # tensorrt_llm/llmapi/llm_args.py of 1.2: max_num_tokens 8192, max_batch_size 2048, GUARANTEED_NO_EVICT; recipes
    # of benchmarks have cuda_graph_config enable_padding
    "trtllm": Scheduler(mixes=True, tokens=8192, sequences=2048, reserved=1.0, pads=True),
}


def scheduler_of(engine: str) -> Scheduler:
    """Return the scheduler of an engine; vLLM's where none is named, or one that is not known here."""
    return SCHEDULERS.get(engine, SCHEDULERS["vllm"])
