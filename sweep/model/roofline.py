"""The roofline of a model on GPUs: a step takes as long as its bytes or its arithmetic, whichever is longer.

Bytes are the weights, once a step, and the keys and values read; arithmetic is 2 operations for each weight and token,
and what attention does with each key and value. Both run at the peak, or a stated share of it, of all GPUs together:
tensor parallelism splits them evenly. Messages between GPUs, launches and the CPU are `overhead_s`, one number a step.
Left out: full windows (each request is taken to be shorter), and experts, which are all read and all computed unless
the numbers of `Roofline` are given by hand.
"""

import math
from typing import NamedTuple

import numpy as np

from sweep.errors import InputError, ModelError
from sweep.model.gpus import Gpu, check_gpus
from sweep.model.memory import bytes_per_token
from sweep.model.models import Model, weight_bytes
from sweep.model.steptable import F64, I64


class Roofline(NamedTuple):
    """Sizes of a model and speeds of its GPUs, all together. An unknown speed may be infinite: it then takes no time.

    flops_per_output: for each emitted token, beside flops_per_token; the LM head, where it is not in the other.
    flops_per_kv_token: what attention does with one token of KV cache that is read.
    """

    weight_bytes: float
    kv_bytes_per_token: float
    flops_per_token: float
    bytes_per_s: float
    flops_per_s: float
    overhead_s: float = 0.0
    flops_per_output: float = 0.0
    flops_per_kv_token: float = 0.0

    def read_bytes(self, kv_tokens: I64) -> F64:
        """Bytes that steps read."""
        return self.weight_bytes + self.kv_bytes_per_token * kv_tokens.astype(np.float64)

    def flops(self, batch: I64, kv_tokens: I64, prefill_tokens: I64) -> F64:
        """Operations of steps. A prompt from an empty cache attends to half of its square, and emits one token."""
        by_token = self.flops_per_token * (batch + prefill_tokens)
        by_output = self.flops_per_output * (batch + (prefill_tokens > 0))
        attention = self.flops_per_kv_token * (kv_tokens + 0.5 * prefill_tokens * prefill_tokens)
        return by_token + by_output + attention


def roofline(
    model: Model,
    gpu: Gpu,
    gpus: int = 1,
    *,
    weight_dtype: str | None = None,
    kv_dtype: str = "fp16",
    attention_heads: int | None = None,
    overhead_s: float = 0.0,
    bandwidth_share: float = 1.0,
    arithmetic_share: float = 1.0,
) -> Roofline:
    """The roofline of a model on `gpus` GPUs. Raises ModelError where a size or a speed is unknown.

    attention_heads: query heads of a layer; without them the arithmetic of attention is left out, which matters for
    prompts of many thousand tokens. *_share: of the peak that is reached, for all steps alike.
    """
    check_gpus(gpus)
    for name, share in (("bandwidth_share", bandwidth_share), ("arithmetic_share", arithmetic_share)):
        if not 0 < share <= 1:
            raise InputError(f"{name}: must be above 0 and at most 1, got {share}")
    if not 0 <= overhead_s < math.inf:
        raise InputError(f"overhead_s: must be 0 or more seconds, got {overhead_s}")
    if attention_heads is not None and attention_heads < 1:
        raise InputError(f"attention_heads: must be 1 or more, got {attention_heads}")
    weights = weight_bytes(model, weight_dtype)
    if weights is None or model.parameters is None:
        raise ModelError(f"model {model.name}: the bytes of its weights are unknown, so its steps have no roofline")
    return Roofline(
        weight_bytes=float(weights),
        kv_bytes_per_token=float(bytes_per_token(model, kv_dtype, gpus)),
        flops_per_token=2.0 * model.parameters,
        bytes_per_s=gpus * _bandwidth(gpu) * bandwidth_share,
        flops_per_s=gpus * _arithmetic(gpu, weight_dtype) * arithmetic_share,
        overhead_s=overhead_s,
        flops_per_kv_token=_attention_flops(model, attention_heads) if attention_heads else 0.0,
    )


def _bandwidth(gpu: Gpu) -> float:
    if gpu.bandwidth_gb_per_s is None:
        raise ModelError(f"GPU {gpu.name}: its bandwidth is unknown, so steps on it have no roofline; name a GPU")
    return gpu.bandwidth_gb_per_s * 1e9


def _arithmetic(gpu: Gpu, weight_dtype: str | None) -> float:
    """Operations a second on weights of this type: narrower ones than the GPU computes with are widened to 16 bits."""
    if weight_dtype == "fp32":
        raise ModelError(f"GPU {gpu.name}: its speed on fp32 weights is unknown; use a type of 16 bits or fewer")
    fp8 = gpu.dense_fp8_tflops if weight_dtype == "fp8" else None
    known = [rate for rate in (fp8, gpu.dense_bf16_tflops, gpu.dense_fp16_tflops) if rate is not None]
    if not known:
        raise ModelError(f"GPU {gpu.name}: its arithmetic is unknown, so steps on it have no roofline; name a GPU")
    return known[0] * 1e12


def _attention_flops(model: Model, heads: int) -> float:
    """Operations on one token of KV cache: each head's product with the key, and its share of the value.

    With a shared latent vector (mla) each head meets the latent and the rotary part, and takes the latent as value.
    """
    dims = (
        group.layers * (2 * group.key_dim + group.value_dim if group.kind == "mla" else group.key_dim + group.value_dim)
        for group in model.groups
    )
    return 2.0 * heads * sum(dims)
