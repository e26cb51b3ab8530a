"""Whole files of models, loads, traces, plans and measurements, small ones, made here."""

from __future__ import annotations

import base64
import io
import json
import struct
import zipfile
from typing import Any

import numpy as np
from mutations_archives import pack

CONFIG: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "num_local_experts": 4,
    "num_experts_per_tok": 2, "vocab_size": 1000, "max_position_embeddings": 32768, "torch_dtype": "bfloat16",
    "rms_norm_eps": 1e-5, "tie_word_embeddings": False, "sliding_window": None, "rope_theta": 1e6, "hidden_act": "silu",
}  # fmt: skip
LAYERS, EXPERTS, TOP_K, RANKS = 2, 4, 2, 4


def configs() -> list[bytes]:
    """Return the small model, and some of the catalog's families cut to few layers."""
    from cost.resolve import resolve_model

    found: list[dict[str, Any]] = [CONFIG]
    names = (
        "deepseek-v3",
        "deepseek-v3.2",
        "gpt-oss-120b",
        "kimi-linear-48b-a3b",
        "qwen3-next-80b-a3b",
        "llama-4-scout",
    )
    for name in (
        *names,
        "glm-4.5-air",
        "minimax-m3",
        "gemma-4-26b-a4b",
        "llama-3.1-8b",
        "deepseek-v3.1-nvfp4",
    ):
        config = resolve_model(name).config
        listed = any(key in config for key in ("layer_types", "linear_attn_config", "moe_layer_freq"))
        found.append(dict(config) if listed else {**config, "num_hidden_layers": 4})
    return [json.dumps(one, default=str).encode() for one in found]


_rng = np.random.default_rng(0)
COUNTS = _rng.integers(1, 90, (LAYERS, EXPERTS))
WINDOWS = _rng.integers(1, 90, (3, LAYERS, EXPERTS))
SLOTS = np.array([[0, 1, 2, 3], [3, 2, 1, 0]])
CHOSEN = np.argsort(_rng.random((12, LAYERS, EXPERTS)), axis=2)[:, :, :TOP_K]


def npy(array: Any, *, objects: bool = False) -> bytes:
    """Return an array as ``.npy``."""
    out = io.BytesIO()
    np.save(out, array, allow_pickle=objects)
    return out.getvalue()


def npz(**arrays: Any) -> bytes:
    """Return arrays as ``.npz``."""
    out = io.BytesIO()
    np.savez(out, **arrays)
    return out.getvalue()


class Torch:
    """Writes what ``torch.save`` would, of NumPy arrays: a zip of a pickle and a member for each storage."""

    def __init__(self) -> None:
        self.storages: list[bytes] = []

    def of(self, value: object) -> bytes:
        """Return the opcodes of a value."""
        if isinstance(value, np.ndarray):
            return self._tensor(value)
        if isinstance(value, dict):
            return b"}(" + b"".join(self.of(part) for pair in value.items() for part in pair) + b"u"
        if isinstance(value, list | tuple):
            inner = b"(" + b"".join(map(self.of, value))
            return inner + b"t" if isinstance(value, tuple) else b"]" + inner + b"e"
        if isinstance(value, str):
            return b"X" + struct.pack("<I", len(value.encode())) + value.encode()
        if isinstance(value, int) and not isinstance(value, bool):
            return b"\x8a\x09" + value.to_bytes(9, "little", signed=True)
        return b"N"

    def _tensor(self, array: np.ndarray) -> bytes:
        self.storages.append(array.tobytes())
        kind = {"int32": "IntStorage", "int64": "LongStorage", "float32": "FloatStorage"}[array.dtype.name]
        storage = (
            b"(" + self.of("storage") + f"ctorch\n{kind}\n".encode() + self.of(str(len(self.storages) - 1))
        )
        storage += self.of("cpu") + self.of(array.size) + b"tQ"
        strides = tuple(stride // array.itemsize for stride in array.strides)
        rest = self.of(0) + self.of(tuple(array.shape)) + self.of(strides)
        return (
            b"ctorch._utils\n_rebuild_tensor_v2\n(" + storage + rest + b"\x89ccollections\nOrderedDict\n)RtR"
        )

    def save(self, value: object) -> bytes:
        """Return the file."""
        members = {"data.pkl": b"\x80\x02" + self.of(value) + b".", "byteorder": b"little", "version": b"3\n"}
        members |= {f"data/{key}": storage for key, storage in enumerate(self.storages)}
        out = io.BytesIO()
        with zipfile.ZipFile(out, "w") as archive:
            for name, content in members.items():
                archive.writestr(f"x/{name}", content)
        return out.getvalue()


def torch(value: object) -> bytes:
    """Return a ``.pt`` file."""
    return Torch().save(value)


def _record(rank: int, number: int, key: str, array: Any) -> dict[str, Any]:
    return {"forward_pass_id": number, "rank": rank, "gatherer_key": "primary", key: array}


def ranks(key: str, of: Any) -> dict[str, bytes]:
    """Return SGLang's files of two ranks."""
    return {
        f"expert_distribution_recorder_1700000000.{r}_{r}.pt": torch(
            {
                "records": [_record(r, n, key, of(r)) for n in range(2)],
                "last_physical_to_logical_map": SLOTS.astype(np.int64),
            }
        )
        for r in range(2)
    }


def per_pass() -> dict[str, bytes]:
    """Return SGLang's ``per_pass`` of two ranks."""
    return ranks("global_physical_count", lambda _: COUNTS.astype(np.int32))


def per_token() -> dict[str, bytes]:
    """Return SGLang's ``per_token`` of two ranks."""
    return ranks(
        "topk_ids_of_layer", lambda _: np.ascontiguousarray(CHOSEN.transpose(1, 0, 2)).astype(np.int32)
    )


LOADS_JSON = json.dumps({"logical_count": COUNTS.tolist()})
VLLM_STATS = "\n".join(
    json.dumps(
        {
            "record_type": "eplb_load_stats",
            "version": 1,
            "step": n,
            "num_ranks": 2,
            "expert_load": COUNTS.tolist(),
            "p2l_map": SLOTS.tolist(),
        }
    )
    for n in range(3)
)
LOADS_CSV = "scenario,layer,expert,tokens\n" + "".join(
    f"s{s},{layer},{e},{COUNTS[layer, e]}\n"
    for s in range(2)
    for layer in range(LAYERS)
    for e in range(EXPERTS)
)
_CHOSEN_B64 = base64.b64encode(npy(CHOSEN.astype(np.int16))).decode()
_BARE = base64.b64encode(CHOSEN.astype("<i4").tobytes()).decode()
ANSWERS = (
    json.dumps(
        {
            "id": "a",
            "choices": [{"index": 0, "routed_experts": CHOSEN.tolist()}],
            "prompt_routed_experts": CHOSEN[:2].tolist(),
        }
    ),
    json.dumps([{"choices": [{"routed_experts": _CHOSEN_B64}]}]),
    json.dumps({"meta_info": {"routed_experts": _BARE}}),
    json.dumps(
        {
            "choices": [
                {
                    "routed_experts": {
                        "data": base64.b64encode(CHOSEN.astype("<i2").tobytes()).decode(),
                        "shape": list(CHOSEN.shape),
                        "dtype": "int16",
                    }
                }
            ]
        }
    ),
)


def parquet() -> bytes:
    """Return FLAME-MoE's table of a layer."""
    import pyarrow as pa
    from pyarrow import parquet as pq

    out = io.BytesIO()
    pq.write_table(pa.table({"indices": CHOSEN[:, 0].tolist(), "scores": np.ones((12, 2)).tolist()}), out)
    return out.getvalue()


def trtllm_folder() -> bytes:
    """Return TensorRT-LLM's statistics."""
    from safetensors.numpy import save

    files = {"meta_info.json": json.dumps({"num_experts": EXPERTS, "num_experts_per_token": TOP_K}).encode()}
    for rank in range(2):
        files[f"rank{rank}.safetensors"] = save(
            {f"{i}_{layer}": COUNTS[layer] for i in (5, 6) for layer in range(LAYERS)}
        )
    return pack(files)


_SPREAD = {str(layer): SLOTS[layer].tolist() for layer in range(LAYERS)}
ENGINES: dict[str, tuple[tuple[str, str, bytes], ...]] = {
    "sglang": (
        ("x.json", "json", json.dumps({"physical_to_logical_map": SLOTS.tolist()}).encode()),
        ("x.pt", "zip", torch({"physical_to_logical_map": SLOTS.astype(np.int64)})),
    ),
    "trtllm": (
        ("x.yaml", "yaml", f"num_slots: 4\ninitial_global_assignments:\n  0: {SLOTS[0].tolist()}\n  1: {SLOTS[1].tolist()}\nlayer_updates_per_iter: 0\n".encode()),
    ),
    "vllm-ascend": (
        (
            "x.json",
            "json",
            json.dumps(
                {
                    "moe_layer_count": LAYERS,
                    "layer_list": [
                        {"layer_id": n, "device_count": RANKS, "device_list": [{"device_id": d, "device_expert": [int(SLOTS[n, d])]} for d in range(RANKS)]}
                        for n in range(LAYERS)
                    ],
                }
            ).encode(),
        ),
    ),
    "vllm": (
        (
            "x.jsonl",
            "jsonl",
            json.dumps({"record_type": "eplb_initial_mapping", "version": 1, "num_redundant_experts": 0, "num_slots": 4, "initial_global_assignments": _SPREAD}).encode(),
        ),
        ("x.json", "json", json.dumps(SLOTS.tolist()).encode()),
    ),
    "npy": (("x.npy", "npy", npy(SLOTS)),),
}  # fmt: skip
"""By engine: a file's name, its form and bytes. Those of the other engines are written by their own exporters."""

LENGTHS = "isl,osl,share\n1024,128,0.5\n4096,1024,0.3\n8192,256,0.2\n"
POINTS = (
    "id,source,quantity,measured,phase,model,cluster,gpus,engine,weights,kv_dtype,tp,ep,batch_per_gpu,context\n"
    "a,me,step_ms,21.5,decode,mixtral-8x7b,hgx-h100,8,sglang,bf16,bf16,1,8,16,4096\n"
    "b,me,tok_s_per_gpu,900,prefill,mixtral-8x7b,hgx-h100,8,vllm,bf16,bf16,8,1,1,4096\n"
)
ALLTOALL = (
    "id,source,quantity,measured,phase,cluster,ep,kernel,tokens_per_gpu,hidden,experts,top_k,dispatch_dtype,combine_dtype\n"
    "d,me,dispatch_us,77,alltoall,hgx-h800,8,deepep-ll-v1,128,7168,256,8,fp8,bf16\n"
)
_SIDE = ("num_workers", "tp_size", "pp_size", "attention_dp_size", "moe_tp_size", "moe_ep_size")
_SILICON = {
    "id": "row", "silicon_data_source": "db; silicon_concurrency=64; measured=2026", "backend": "trtllm", "backend_version": "1.0",
    "model_path": "deepseek-ai/DeepSeek-R1", "system": "b200_sxm", "precision": "fp8", "mode": "agg", "isl": "1024", "osl": "512",
    "gemm_quant_mode": "fp8", "moe_quant_mode": "fp8_block", "batch_size": "64", "tp_size": "8", "pp_size": "1",
    "attention_dp_size": "1", "moe_tp_size": "1", "moe_ep_size": "8", "prefill_batch_size": "",
    **{f"prefill_{name}": "" for name in _SIDE}, "decode_batch_size": "", **{f"decode_{name}": "" for name in _SIDE},
    "silicon_ttft_ms": "300.5", "silicon_tpot_ms": "17.25",
}  # fmt: skip
SILICON = ",".join(_SILICON) + "\n" + ",".join(_SILICON.values()) + "\n"
_WORDS = {
    "id": "a", "source": "blog", "model": "DeepSeek-V3/R1", "chip": "H100", "n_chips": "72", "domain_size": "8", "phase": "decode",
    "parallelism": "EP72 DP72", "weight_dtype": "fp8", "kv_dtype": "", "batch_per_gpu": "128", "isl_or_context": "4000", "osl": "", "tok_s_per_gpu": "2000", "tpot_ms": "", "notes": "",
}  # fmt: skip
TRANSCRIBED = ",".join(_WORDS) + "\n" + ",".join(_WORDS.values()) + "\n"
STUDY = (
    "kind: sweep\nfixed: {model: mixtral-8x7b, cluster: hgx-h100}\ngrid: {weights: [bf16, fp8], context: [1024, 4096]}\nlimit_s: 20\n",
    "kind: score\nfixed: {model: mixtral-8x7b, cluster: hgx-h100}\ngrid: {ep: [4, 8]}\nsample: {points: 4, seed: 1, context: [1024, 65536]}\n",
    "kind: sweep\nfixed: {model: mixtral-8x7b, cluster: hgx-h100}\noptimize: {goal: usd_per_million_tokens, trials: 4, search: {set.gpu.hbm_bytes_per_s: {low: 0.5x, high: 4x, scale: log}}, usd_per_h: {set.gpu.hbm_bytes_per_s: 0.8}, curve: {domain_gpus: [4, 8]}}\n",
)
ASKED = (
    json.dumps(
        {
            "model": {"name": "mixtral-8x7b"},
            "clusters": [{"name": "hgx-h100"}],
            "isl": 1024,
            "osl": 128,
            "factors": {"hbm": 2.0},
            "prices": {"h100-sxm": 2.0},
        }
    ),
    json.dumps(
        {
            "asked": {
                "model": {"name": "m.json", "text": json.dumps(CONFIG)},
                "clusters": [{"name": "c.yaml", "text": "domains: [{part: hgx-h100}]"}],
                "tpot_ms": 50,
                "ttft_ms": "none",
                "pools": True,
            },
            "point": {"cluster": 0, "layout": "EP8 TP1 PP1 x1", "batch": 8},
        }
    ),
    json.dumps(
        {
            "kind": "place",
            "asked": {"model": {"name": "mixtral-8x7b"}, "clusters": [{"name": "hgx-h100"}]},
            "order": {"cluster": 0, "ep": 8, "loads": "zipf:0.4", "seconds": 0},
        }
    ),
    json.dumps({"kind": "lose", "of": "j1", "lost": ["d0.n0.g1"]}),
)
