"""KV-cache memory: real configurations, budgets, how many requests fit, and files that are not understood."""

import contextlib
import json
import pickle
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sweep.errors import InputError, ModelError, SweepError
from sweep.model.gpus import budget, built_in_gpus, read_gpu
from sweep.model.layers import LayerGroup
from sweep.model.memory import (
    Holding,
    bytes_per_token,
    bytes_per_token_windows_full,
    clashes,
    explain,
    fit,
    held_bytes,
    kv_bytes,
    memory_answer,
    requests_that_fit,
)
from sweep.model.models import Model, built_in_models, model_by_hand, read_model, weight_bytes

GIB, KIB = 2**30, 2**10
DATA = Path(__file__).parents[2] / "shared" / "data"
CONFIGS = DATA / "configs"


def _expected() -> dict[str, dict[str, Any]]:
    path = CONFIGS / "expected.json"
    return json.loads(path.read_text("utf-8"))["models"] if path.exists() else {}


EXPECTED = _expected()
needs_configs = pytest.mark.skipif(not EXPECTED, reason="the folder of real configurations is not here")


# Real configurations


@needs_configs
@pytest.mark.parametrize("name", EXPECTED)
def test_a_real_configuration_gives_the_layers_and_bytes_derived_by_hand(name: str) -> None:
    right = EXPECTED[name]
    model = read_model(CONFIGS / right["file"])
    dims = [(g["layers"], g["kind"], g.get("kv_heads", 1), g.get("window")) for g in right["layer_groups"]]
    assert [(g.layers, g.kind, g.kv_heads, g.window) for g in model.groups] == [d for d in dims if d[1] != "no_kv"]
    for kv_dtype in ("fp16", "fp8"):
        assert bytes_per_token(model, kv_dtype) == right["kv_bytes_per_token"][kv_dtype]
        assert bytes_per_token_windows_full(model, kv_dtype) == right["kv_bytes_per_token_past_windows"][kv_dtype]
        for tokens, total in right["kv_total_bytes"][kv_dtype].items():
            assert kv_bytes(model, int(tokens), kv_dtype) == total
        for tokens, total in right["kv_total_bytes_without_windows"][kv_dtype].items():
            assert kv_bytes(model, int(tokens), kv_dtype, trim_windows=False) == total


@needs_configs
@pytest.mark.parametrize("name", EXPECTED)
def test_parameters_of_a_real_configuration_are_those_of_its_tensors_or_unknown(name: str) -> None:
    right = EXPECTED[name]
    model = read_model(CONFIGS / right["file"])
    assert model.parameters == right["parameters"]
    assert weight_bytes(model, "bf16") == right["weight_bytes_fp16"]
    assert weight_bytes(model) == (None if model.quantised else right["weight_bytes_fp16"])


@needs_configs
@pytest.mark.parametrize("model", built_in_models(), ids=lambda model: model.name)
def test_a_built_in_model_is_its_file(model: Model) -> None:
    read = read_model(CONFIGS / f"{model.organisation}--{model.name}.json")
    numbers = ("groups", "without_kv", "parameters", "quantised")
    assert [getattr(model, each) for each in numbers] == [getattr(read, each) for each in numbers]


@needs_configs
def test_built_in_gpus_are_the_collected_facts() -> None:
    facts = json.loads((DATA / "gpus.json").read_text("utf-8"))["gpus"]
    assert [gpu.name for gpu in built_in_gpus()] == [fact["name"] for fact in facts]
    for gpu, fact in zip(built_in_gpus(), facts, strict=True):
        reported = fact["memory_gib_reported"]
        assert gpu.memory_bytes == (None if reported is None else round(reported * GIB))
        assert gpu.vendor_gb == fact["memory_gb"]
        for key in ("bandwidth_gb_per_s", "dense_fp16_tflops", "dense_bf16_tflops", "dense_fp8_tflops"):
            assert getattr(gpu, key) == fact[key]


PUBLISHED = {  # bytes per token in fp16, after all windows, parameters
    "Llama-2-7b-hf": (512 * KIB, 512 * KIB, 6_738_415_616),
    "Llama-3.1-8B-Instruct": (128 * KIB, 128 * KIB, 8_030_261_248),
    "Llama-3.1-70B": (320 * KIB, 320 * KIB, 70_553_706_496),
    "Llama-3.1-405B": (516_096, 516_096, 405_853_388_800),
    "DeepSeek-V3": (70_272, 70_272, 671_026_419_200),
    "Mistral-7B-v0.1": (128 * KIB, 0, 7_241_732_096),
    "gpt-oss-20b": (48 * KIB, 24 * KIB, 20_914_757_184),
    "gemma-3-1b-it": (26 * KIB, 4 * KIB, 999_885_952),
    "falcon-7b-instruct": (8 * KIB, 8 * KIB, 7_217_189_760),
    "Jamba-v0.1": (16 * KIB, 16 * KIB, 51_570_323_328),
    "Qwen3-Next-80B-A3B-Thinking": (24 * KIB, 24 * KIB, 79_674_391_296),
    "Llama-4-Scout-17B-16E-Instruct": (192 * KIB, 48 * KIB, 107_769_861_120),
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_built_in_models_keep_the_published_bytes_per_token(name: str) -> None:
    model = read_model(name)
    assert (bytes_per_token(model), bytes_per_token_windows_full(model), model.parameters) == PUBLISHED[name]


# Models that are in no list of the project. KV as (bytes per token in fp16, after all windows).

LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 16,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 64,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "attention_bias": False,
    "mlp_bias": False,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
}
GEMMA_2_27B = {
    "architectures": ["Gemma2ForCausalLM"],
    "model_type": "gemma2",
    "cache_implementation": "hybrid",
    "hidden_size": 4608,
    "intermediate_size": 36864,
    "num_hidden_layers": 46,
    "num_attention_heads": 32,
    "num_key_value_heads": 16,
    "head_dim": 128,
    "query_pre_attn_scalar": 144,
    "sliding_window": 4096,
    "sliding_window_size": 4096,
    "max_position_embeddings": 8192,
    "vocab_size": 256000,
}
DEEPSEEK_V2 = {
    "architectures": ["DeepseekV2ForCausalLM"],
    "model_type": "deepseek_v2",
    "attention_bias": False,
    "first_k_dense_replace": 1,
    "hidden_size": 5120,
    "intermediate_size": 12288,
    "kv_lora_rank": 512,
    "moe_intermediate_size": 1536,
    "moe_layer_freq": 1,
    "n_group": 8,
    "n_routed_experts": 160,
    "n_shared_experts": 2,
    "num_attention_heads": 128,
    "num_hidden_layers": 60,
    "num_key_value_heads": 128,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "tie_word_embeddings": False,
    "v_head_dim": 128,
    "vocab_size": 102400,
}
QWEN_3_5 = {  # the shape of a hybrid whose text part is nested
    "model_type": "qwen3_5",
    "architectures": ["Qwen3_5ForConditionalGeneration"],
    "text_config": {
        "model_type": "qwen3_5_text",
        "full_attention_interval": 4,
        "head_dim": 256,
        "hidden_size": 4096,
        "intermediate_size": 12288,
        "layer_types": ["linear_attention", "linear_attention", "linear_attention", "full_attention"] * 8,
        "linear_conv_kernel_dim": 4,
        "linear_key_head_dim": 128,
        "linear_num_key_heads": 16,
        "linear_num_value_heads": 32,
        "linear_value_head_dim": 128,
        "num_attention_heads": 16,
        "num_hidden_layers": 32,
        "num_key_value_heads": 4,
        "vocab_size": 248320,
    },
    "vision_config": {"hidden_size": 1152, "num_heads": 16, "depth": 27},
}


def _llama(**changes: Any) -> dict[str, Any]:
    return {**LLAMA, **changes}


READ_RIGHT: dict[str, tuple[dict[str, Any], int, int, int | None]] = {
    "Llama-3.2-1B": (LLAMA, 32 * KIB, 32 * KIB, 1_235_814_400),
    "Llama-3.2-3B": (
        _llama(hidden_size=3072, num_hidden_layers=28, num_attention_heads=24, head_dim=128),
        112 * KIB,
        112 * KIB,
        3_212_749_824,
    ),
    "Qwen2.5-0.5B": (
        {
            "model_type": "qwen2",
            "hidden_size": 896,
            "intermediate_size": 4864,
            "max_window_layers": 21,
            "num_attention_heads": 14,
            "num_hidden_layers": 24,
            "num_key_value_heads": 2,
            "sliding_window": 32768,
            "tie_word_embeddings": True,
            "use_sliding_window": False,
            "vocab_size": 151936,
        },
        12 * KIB,
        12 * KIB,
        494_032_768,
    ),
    "Qwen2 with its window switched on": (
        {
            "model_type": "qwen2",
            "hidden_size": 896,
            "max_window_layers": 21,
            "num_attention_heads": 14,
            "num_hidden_layers": 24,
            "num_key_value_heads": 2,
            "sliding_window": 4096,
            "use_sliding_window": True,
        },
        24 * 512,
        21 * 512,
        None,
    ),
    "Mistral-Small-24B": (
        {
            "model_type": "mistral",
            "head_dim": 128,
            "hidden_size": 5120,
            "intermediate_size": 32768,
            "num_attention_heads": 32,
            "num_hidden_layers": 40,
            "num_key_value_heads": 8,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "vocab_size": 131072,
        },
        160 * KIB,
        160 * KIB,
        23_572_403_200,
    ),
    "Phi-4": (
        {
            "model_type": "phi3",
            "hidden_size": 5120,
            "intermediate_size": 17920,
            "num_attention_heads": 40,
            "num_hidden_layers": 40,
            "num_key_value_heads": 10,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "vocab_size": 100352,
        },
        200 * KIB,
        200 * KIB,
        14_659_507_200,
    ),
    "Phi-4-mini": (
        {
            "model_type": "phi3",
            "hidden_size": 3072,
            "intermediate_size": 8192,
            "max_position_embeddings": 131072,
            "num_attention_heads": 24,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "sliding_window": 262144,
            "tie_word_embeddings": True,
            "vocab_size": 200064,
        },
        128 * KIB,
        128 * KIB,
        3_836_021_760,
    ),
    "Gemma-2-27B": (GEMMA_2_27B, 368 * KIB, 184 * KIB, 27_227_128_320),
    "DeepSeek-V2": (DEEPSEEK_V2, 69_120, 69_120, 235_741_434_880),
    "Qwen3.5-style hybrid": (QWEN_3_5, 32 * KIB, 32 * KIB, None),
    "Qwen1.5-MoE-A2.7B": (
        {
            "model_type": "qwen2_moe",
            "decoder_sparse_step": 1,
            "hidden_size": 2048,
            "intermediate_size": 5632,
            "max_window_layers": 21,
            "moe_intermediate_size": 1408,
            "num_attention_heads": 16,
            "num_experts": 60,
            "num_hidden_layers": 24,
            "num_key_value_heads": 16,
            "shared_expert_intermediate_size": 5632,
            "sliding_window": 32768,
            "tie_word_embeddings": False,
            "use_sliding_window": False,
            "vocab_size": 151936,
        },
        192 * KIB,
        192 * KIB,
        14_315_784_192,
    ),
    "Mixtral-8x22B": (
        {
            "model_type": "mixtral",
            "hidden_size": 6144,
            "intermediate_size": 16384,
            "num_attention_heads": 48,
            "num_hidden_layers": 56,
            "num_key_value_heads": 8,
            "num_local_experts": 8,
            "sliding_window": None,
            "tie_word_embeddings": False,
            "vocab_size": 32768,
        },
        224 * KIB,
        224 * KIB,
        140_630_071_296,
    ),
    "Command-R7B": (
        {
            "model_type": "cohere2",
            "head_dim": 128,
            "hidden_size": 4096,
            "layer_switch": 4,
            "max_position_embeddings": 132096,
            "num_attention_heads": 32,
            "num_hidden_layers": 32,
            "num_key_value_heads": 8,
            "sliding_window": 4096,
            "sliding_window_pattern": 4,
        },
        128 * KIB,
        32 * KIB,
        None,
    ),
    "Falcon-180B": (
        {
            "model_type": "falcon",
            "hidden_size": 14848,
            "multi_query": True,
            "new_decoder_architecture": True,
            "num_attention_heads": 232,
            "num_hidden_layers": 80,
            "num_kv_heads": 8,
        },
        160 * KIB,
        160 * KIB,
        None,
    ),
    "Pixtral, whose nested part leaves out the heads": (
        {
            "model_type": "llava",
            "text_config": {
                "model_type": "mistral",
                "head_dim": 128,
                "hidden_size": 5120,
                "intermediate_size": 14336,
                "num_hidden_layers": 40,
                "num_key_value_heads": 8,
                "sliding_window": None,
                "vocab_size": 131072,
            },
        },
        160 * KIB,
        160 * KIB,
        12_247_782_400,
    ),
    "Llama-4-Maverick's list of rotary layers": (
        {
            "model_type": "llama4",
            "text_config": {
                "model_type": "llama4_text",
                "attention_chunk_size": 8192,
                "head_dim": 128,
                "hidden_size": 5120,
                "no_rope_layers": [1, 1, 1, 0] * 12,
                "num_attention_heads": 40,
                "num_hidden_layers": 48,
                "num_key_value_heads": 8,
            },
        },
        192 * KIB,
        48 * KIB,
        None,
    ),
    "Gemma-3n, whose last layers read earlier keys": (
        {
            "model_type": "gemma3n",
            "text_config": {
                "model_type": "gemma3n_text",
                "activation_sparsity_pattern": [0.95] * 10 + [0.0] * 20,
                "head_dim": 256,
                "hidden_size": 2048,
                "intermediate_size": [8192] * 30,
                "layer_types": (["sliding_attention"] * 4 + ["full_attention"]) * 6,
                "num_attention_heads": 8,
                "num_hidden_layers": 30,
                "num_key_value_heads": 2,
                "num_kv_shared_layers": 10,
                "sliding_window": 512,
            },
        },
        20 * 2 * 512 * 2,
        4 * 2 * 512 * 2,
        None,
    ),
    "Gemma-4, whose full layers have other heads": (
        {
            "model_type": "gemma4",
            "text_config": {
                "model_type": "gemma4_text",
                "attention_k_eq_v": True,
                "global_head_dim": 512,
                "head_dim": 256,
                "hidden_size": 5376,
                "num_attention_heads": 32,
                "num_global_key_value_heads": 4,
                "num_hidden_layers": 60,
                "num_key_value_heads": 16,
                "sliding_window": 1024,
                "use_bidirectional_attention": "vision",
            },
        },
        (50 * 16 * 512 + 10 * 4 * 1024) * 2,
        10 * 4 * 1024 * 2,
        None,
    ),
    "Granite-4 hybrid": (
        {
            "model_type": "granitemoehybrid",
            "hidden_size": 1536,
            "layer_types": (["mamba"] * 9 + ["attention"]) * 4,
            "mamba_d_state": 128,
            "mamba_n_heads": 48,
            "num_attention_heads": 12,
            "num_hidden_layers": 40,
            "num_key_value_heads": 4,
        },
        8 * KIB,
        8 * KIB,
        None,
    ),
    "Kimi-Linear": (
        {
            "model_type": "kimi_linear",
            "head_dim": 72,
            "hidden_size": 2304,
            "kv_lora_rank": 512,
            "linear_attn_config": {"full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "num_heads": 32},
            "num_attention_heads": 32,
            "num_hidden_layers": 27,
            "num_key_value_heads": 32,
            "q_lora_rank": None,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
        },
        7 * 576 * 2,
        7 * 576 * 2,
        None,
    ),
    "DBRX": (
        {
            "model_type": "dbrx",
            "attn_config": {"clip_qkv": 8, "kv_n_heads": 8, "rope_theta": 500000},
            "d_model": 6144,
            "n_heads": 48,
            "n_layers": 40,
            "vocab_size": 100352,
        },
        160 * KIB,
        160 * KIB,
        None,
    ),
    "MiniMax-Text-01": (
        {
            "model_type": "minimax_text_01",
            "attn_type_list": [0, 0, 0, 0, 0, 0, 0, 1] * 10,
            "head_dim": 128,
            "hidden_size": 6144,
            "layernorm_linear_attention_alpha": 3.55,
            "num_attention_heads": 64,
            "num_hidden_layers": 80,
            "num_key_value_heads": 8,
        },
        40 * KIB,
        40 * KIB,
        None,
    ),
    "a family of its own with ordinary keys": (
        _llama(model_type="brand_new", architectures=["BrandNewForCausalLM"], flash_decode=True),
        32 * KIB,
        32 * KIB,
        None,
    ),
}


def _write(folder: Path, content: object) -> Path:
    path = folder / "config.json"
    path.write_text(content if isinstance(content, str) else json.dumps(content), "utf-8")
    return path


@pytest.mark.parametrize("name", READ_RIGHT)
def test_other_models_are_read_right(name: str, tmp_path: Path) -> None:
    config, before, after, parameters = READ_RIGHT[name]
    model = read_model(_write(tmp_path, config))
    assert (bytes_per_token(model), bytes_per_token_windows_full(model)) == (before, after)
    assert model.parameters == parameters


EXAONE = {
    "model_type": "exaone4",
    "hidden_size": 5120,
    "max_position_embeddings": 131072,
    "num_attention_heads": 40,
    "num_hidden_layers": 7,
    "num_key_value_heads": 8,
    "sliding_window": 4096,
}


@pytest.mark.parametrize(
    ("pattern", "sliding"),
    [
        ("LLG", 4),  # L L G L L G, and the seventh, an L, is the last and so full
        ("LLLG", 5),  # L L L G L L, and the last
        ("G", 0),
        ("LLLLLLLLLL", 6),  # longer than there are layers
        (4, 6),  # a number has no rule for the last layer: the fourth alone is full
        (None, 6),
    ],
)
def test_a_pattern_in_letters_says_which_layers_slide(pattern: object, sliding: int, tmp_path: Path) -> None:
    model = read_model(_write(tmp_path, {**EXAONE, "sliding_window_pattern": pattern}))
    a_layer = 8 * (128 + 128) * 2  # KV heads x values x bytes
    assert bytes_per_token(model) == 7 * a_layer
    assert bytes_per_token_windows_full(model) == (7 - sliding) * a_layer


def test_a_pattern_without_a_window_leaves_every_layer_full(tmp_path: Path) -> None:
    for pattern in ("LLLG", 4):
        model = read_model(_write(tmp_path, {**EXAONE, "sliding_window_pattern": pattern, "sliding_window": None}))
        assert model.groups == (LayerGroup(7, "full", 8, 128, 128),)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"sliding_window_pattern": "LLXG"},
            r'"LLXG" must be made of L \(sliding\) and G \(full\), such as LLLG; give',
        ),
        ({"sliding_window_pattern": ""}, r'"" must be made of L'),
        (
            {"sliding_window_pattern": "LLLG", "model_type": "cohere2"},
            "known for model_type exaone4 only; give layer_types",
        ),
    ],
)
def test_a_pattern_in_letters_without_a_meaning_is_refused(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=f"sliding_window_pattern: .*{words}.*--kv-per-token"):
        read_model(_write(tmp_path, {**EXAONE, **changes}))


UNUSUAL = {
    "an indexer with keys of its own": {**DEEPSEEK_V2, "model_type": "deepseek_v32", "index_head_dim": 128},
    "an indexer in a known family": {**DEEPSEEK_V2, "index_topk": 2048},
    "latent attention of an unknown family": {**DEEPSEEK_V2, "model_type": "brand_new"},
    "a window whose layers are not told": _llama(model_type="brand_new", sliding_window=4096),
    "a window in a family without": _llama(sliding_window=4096),
    "layers that share a cache": _llama(model_type="brand_new", use_cla=True, cla_share_factor=2),
    "layers that read earlier keys, in an unknown way": _llama(model_type="brand_new", num_kv_shared_layers=4),
    "heads by layer": _llama(model_type="deci", num_key_value_heads=None, num_key_value_heads_per_layer=[4] * 16),
    "a second head dim": _llama(model_type="brand_new", v_head_dim=128),
    "a loop over the layers": _llama(model_type="brand_new", total_ut_steps=4),
    "an encoder": _llama(model_type="bert", architectures=["BertForMaskedLM"]),
    "an unknown encoder": _llama(model_type="brand_new", architectures=["BrandNewForMaskedLM"]),
    "an encoder and a decoder": _llama(model_type="brand_new", is_encoder_decoder=True),
    "an unknown kind of layer": _llama(layer_types=["full_attention"] * 15 + ["hybrid"]),
    "too few kinds of layers": _llama(layer_types=["full_attention"] * 15),
    "no layer with a cache": _llama(layer_types=["mamba"] * 16),
    "two names that disagree": _llama(n_layer=17),
    "KV heads that do not divide the heads": _llama(num_key_value_heads=5),
    "no number of layers": {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"},
    "a width that no head divides": _llama(head_dim=None, hidden_size=2050),
    "a state-space model": {"model_type": "mamba", "hidden_size": 2048, "num_hidden_layers": 48},
    "two text parts": {"text_config": LLAMA, "llm_config": LLAMA},
}


@pytest.mark.parametrize("what", UNUSUAL)
def test_what_is_not_understood_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    path = _write(tmp_path, UNUSUAL[what])
    with pytest.raises(ModelError) as caught:
        read_model(path)
    assert len(caught.value.lines) == 1
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith(f"{path}: ")


def test_a_refusal_says_how_to_give_the_numbers_by_hand(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"num_hidden_layers .* is missing.*--kv-per-token .*--weights"):
        read_model(_write(tmp_path, UNUSUAL["no number of layers"]))


@pytest.mark.parametrize("key", ["num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim"])
@pytest.mark.parametrize("value", ['"32"', "-8", "0", "1e400", "NaN", "-Infinity", "8.5", "true", "[8]", "9" * 30])
def test_a_needed_number_that_is_none_is_refused_in_one_line(key: str, value: str, tmp_path: Path) -> None:
    text = json.dumps(_llama(**{key: "here"})).replace('"here"', value)
    with pytest.raises(ModelError, match=rf"config\.json: {key}: must be a whole number") as caught:
        read_model(_write(tmp_path, text))
    assert len(str(caught.value)) < 400


def test_non_finite_numbers_in_keys_that_do_not_matter_are_no_fault(tmp_path: Path) -> None:
    text = json.dumps(_llama(time_step_limit=[0.0, float("inf")], rope_theta=float("nan")))
    assert read_model(_write(tmp_path, text)).groups == (LayerGroup(16, "full", 8, 64, 64),)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"{", "is not JSON"),
        (b"", "is not JSON"),
        (b"\xff\xfe\x00", "is not JSON"),
        (b"[1, 2]", "must hold a JSON object"),
        (b"null", "must hold a JSON object"),
        (b"9" * 10_000, "is not JSON"),
        (pickle.dumps(LLAMA), "is not JSON"),
        (b"[" * 1_000_000, "nested too deeply"),
        (b'{"a":' * 1_000_000, "is nested too deeply|has 5,000,000 bytes"),
        (b"[" * 50_000_000, "has 50,000,000 bytes"),
    ],
)
def test_a_file_that_holds_no_configuration_is_refused_in_one_line(
    content: bytes, problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(content)
    with pytest.raises(ModelError, match=problem) as caught:
        read_model(path)
    assert "\n" not in str(caught.value)


def test_a_directory_and_a_missing_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"is a directory; give the path of the config\.json in it"):
        read_model(tmp_path)
    with pytest.raises(ModelError, match="there is no such file"):
        read_model(tmp_path / "missing.json")
    with pytest.raises(ModelError, match="is not a file"):
        read_model("/dev/null")


def test_a_name_may_have_its_organisation_any_case_and_an_unambiguous_beginning() -> None:
    assert read_model("meta-llama/llama-3.1-8b-instruct").name == "Llama-3.1-8B-Instruct"
    assert read_model("Llama-3.1-8B").name == "Llama-3.1-8B-Instruct"
    with pytest.raises(ModelError, match=r"may be several.*Qwen3-235B-A22B, Qwen3-30B-A3B"):
        read_model("Qwen3")
    for unknown in ("Llama-9", "someone/gpt2", "a\0b", "x" * 5000, ""):
        with pytest.raises(ModelError, match="is neither a file nor known"):
            read_model(unknown)
    with pytest.raises(ModelError, match="did you mean DeepSeek-V3\\?"):
        read_model("deepseek-ai/deepseekv3")


def test_what_was_read_and_what_assumed_is_told(tmp_path: Path) -> None:
    model = read_model(_write(tmp_path, _llama(head_dim=None, num_key_value_heads=None)))
    assert {"model_type", "num_hidden_layers", "num_attention_heads", "hidden_size"} <= set(model.keys_read)
    assert "vocab_size" in model.keys_read
    assert "rope_theta" not in model.keys_read
    assert "num_key_value_heads = 32, as many as heads" in model.assumed
    assert "head_dim = 2048 / 32 = 64" in model.assumed


def test_the_bytes_explain_themselves() -> None:
    deepseek, mistral = read_model("DeepSeek-V3"), read_model("Mistral-7B-v0.1")
    assert explain(deepseek) == ("61 layers x (512 + 64) values x 2 bytes = 70,272 bytes per token",)
    assert explain(mistral, "fp8", trim_windows=False) == (
        "32 sliding layers x 8 KV heads x (128 + 128) values x 1 byte = 65,536 bytes per token,"
        " of the last 4,096 tokens",
        "windows are not trimmed: every layer keeps every token",
    )


JUNK = [None, "32", -1, 0, 3, 10**12, 1.5, float("inf"), True, False, [], [1], ["x"], {}, {"a": 1}, [None], [{}]]


@settings(deadline=None, derandomize=True, max_examples=300)
@given(st.sampled_from([config for config, *_ in READ_RIGHT.values()]), st.sampled_from(JUNK), st.data())
def test_junk_under_any_key_is_read_or_refused_never_a_traceback(
    config: dict[str, Any], junk: object, data: st.DataObject
) -> None:
    changed = json.loads(json.dumps(config))
    part = changed["text_config"] if "text_config" in changed and data.draw(st.booleans()) else changed
    part[data.draw(st.sampled_from(sorted(part)))] = junk
    with contextlib.suppress(ModelError):
        assert bytes_per_token(_from_text(json.dumps(changed))) > 0


def _from_text(text: str) -> Model:
    with tempfile.TemporaryDirectory() as folder:
        return read_model(_write(Path(folder), text))


# How many fit


def test_the_reference_table_comes_out() -> None:
    seven_billion = read_model("Llama-2-7b-hf")
    contexts = [512, 1024, 2048, 4096, 8192, 16384, 32768]
    assert [fit(seven_billion, 64 * GIB, context) for context in contexts] == [256, 128, 64, 32, 16, 8, 4]
    assert [requests_that_fit(64 * GIB, context, 512 * KIB) for context in contexts] == [256, 128, 64, 32, 16, 8, 4]
    assert requests_that_fit(64 * GIB, 2500, 512 * KIB) == 52


def _groups() -> st.SearchStrategy[LayerGroup]:
    heads, dims = st.sampled_from([1, 2, 4, 8]), st.sampled_from([64, 80, 128])
    windows = st.none() | st.integers(1, 5000)
    return st.builds(LayerGroup, st.integers(1, 60), st.just("full"), heads, dims, dims, windows)


MODELS = st.lists(_groups(), min_size=1, max_size=3).map(lambda groups: Model("any", tuple(groups)))
GPUS = st.sampled_from([1, 2, 4, 8, 16])


@settings(deadline=None, derandomize=True, max_examples=200)
@given(MODELS, st.integers(0, 20_000), st.integers(0, 5000), GPUS, st.booleans())
def test_bytes_never_fall_with_tokens(model: Model, tokens: int, more: int, gpus: int, trim: bool) -> None:
    assert kv_bytes(model, tokens, "fp8", gpus, trim) <= kv_bytes(model, tokens + more, "fp8", gpus, trim)
    assert kv_bytes(model, tokens, "fp8", gpus, True) <= kv_bytes(model, tokens, "fp8", gpus, False)


@settings(deadline=None, derandomize=True, max_examples=300)
@given(MODELS, st.integers(-10, 10**12), st.integers(1, 50_000), GPUS, st.booleans(), st.data())
def test_requests_that_fit_do_fit_and_one_more_does_not(
    model: Model, budget_bytes: int, context: int, gpus: int, trim: bool, data: st.DataObject
) -> None:
    prefix = data.draw(st.integers(0, context - 1))
    held = Holding("fp16", gpus, prefix, trim)
    most = fit(model, budget_bytes, context, held)
    assert most == 0 or held_bytes(model, most, context, held) <= budget_bytes
    assert held_bytes(model, most + 1, context, held) > budget_bytes


@settings(deadline=None, derandomize=True, max_examples=100)
@given(MODELS, st.integers(1, 50_000), st.integers(0, 100), GPUS, st.booleans())
def test_requests_that_share_nothing_hold_the_sum_of_each(
    model: Model, context: int, requests: int, gpus: int, trim: bool
) -> None:
    total = held_bytes(model, requests, context, Holding(gpus=gpus, trim_windows=trim))
    assert total == requests * kv_bytes(model, context, "fp16", gpus, trim)


def test_a_shared_prefix_is_held_once() -> None:
    model = read_model("Llama-2-7b-hf")
    held = Holding(shared_prefix=1000)
    assert held_bytes(model, 10, 3000, held) == (1000 + 10 * 2000) * 512 * KIB
    assert fit(model, 64 * GIB, 3000, held) == (131_072 - 1000) // 2000
    with pytest.raises(InputError, match="shared_prefix: must be from 0 to less than the context 1,000, got 1,000"):
        fit(model, 64 * GIB, 1000, held)


def test_kv_heads_are_split_over_gpus_and_copied_once_there_are_more_gpus_than_heads() -> None:
    llama, deepseek = read_model("Llama-3.1-70B"), read_model("DeepSeek-V3")
    assert [bytes_per_token(llama, gpus=gpus) // KIB for gpus in (1, 2, 4, 8, 16)] == [320, 320, 320, 320, 640]
    assert [bytes_per_token(deepseek, gpus=gpus) for gpus in (1, 8)] == [70_272, 8 * 70_272]
    with pytest.raises(InputError, match="gpus: 8 KV heads cannot be split evenly over 3 GPUs"):
        bytes_per_token(llama, gpus=3)


def test_bytes_given_by_hand_are_taken_as_they_are() -> None:
    assert kv_bytes(model_by_hand(512 * KIB), 2048, "fp8", gpus=2) == GIB
    with pytest.raises(InputError, match="kv_per_token: must be from 1 B to 1 TiB, got 0 B"):
        model_by_hand(0)


# GPUs and budgets


def test_a_gpu_is_known_by_name_by_an_unambiguous_part_of_it_or_by_its_size() -> None:
    assert read_gpu("h100-sxm-80gb").memory_bytes == round(79.65 * GIB)
    assert read_gpu("H200").name == "H200-SXM-141GB"
    assert read_gpu("80 GiB").memory_bytes == 80 * GIB
    assert read_gpu("80 GB").memory_bytes == 80 * 10**9
    with pytest.raises(ModelError, match="may be H100-PCIe-80GB or H100-SXM-80GB"):
        read_gpu("H100")
    with pytest.raises(ModelError, match=r"is not known; use one of T4, .*or give a size"):
        read_gpu("abacus")
    with pytest.raises(ModelError, match="is not known; did you mean RTX-4090\\?"):
        read_gpu("RTX-4900")
    for size in ("80", "0 GiB", "80 XB", "9e99 GiB"):
        with pytest.raises(InputError):
            read_gpu(size)


def test_a_gpu_whose_memory_is_not_known_must_be_given_by_size() -> None:
    with pytest.raises(InputError, match=r'^gpu: .* of MI325X .*give a size, such as "256 GB"'):
        budget(read_gpu("MI325X"), 1, 0)


def test_the_budget_is_the_sum_of_its_terms() -> None:
    terms = budget(read_gpu("80 GiB"), 2, 16 * GIB, 0.9, GIB)
    assert (terms.usable_bytes, terms.kv_bytes) == (144 * GIB, 127 * GIB)
    assert terms.lines() == (
        "2 x 80 GiB x 0.9 = 144 GiB usable",
        "- 16 GiB weights",
        "- 1 GiB overhead",
        "= 127 GiB for keys and values",
    )


@pytest.mark.parametrize(
    "wrong", [{"gpus": 0}, {"utilisation": 0.0}, {"utilisation": 1.1}, {"overhead_bytes": -1}, {"weight_bytes": -1}]
)
def test_a_budget_that_cannot_be_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(SweepError):
        budget(read_gpu("80 GiB"), **{"gpus": 1, "weight_bytes": 0, **wrong})


# The whole answer


def test_the_answer_agrees_with_its_parts_and_is_json() -> None:
    model, gpu = read_model("Llama-3.1-8B-Instruct"), read_gpu("A100-SXM-80GB")
    held = Holding("fp8", shared_prefix=1024)
    answer = json.loads(json.dumps(memory_answer(model, gpu, held, contexts=[2048, 8192])))
    left = 72 * GIB - 2 * 8_030_261_248
    assert answer["bytes_per_token"] == answer["bytes_per_token_windows_full"] == 64 * KIB
    assert (answer["parameters"], answer["weight_bytes"]) == (8_030_261_248, 2 * 8_030_261_248)
    assert answer["budget_bytes"] == answer["budget_terms"]["kv_bytes"] == left
    assert answer["table"] == [
        {
            "context": context,
            "bytes_per_request": context * 64 * KIB,
            "requests_that_fit": (left - 2**26) // ((context - 1024) * 64 * KIB),
            "requests_that_fit_without_sharing": left // (context * 64 * KIB),
        }
        for context in (2048, 8192)
    ]


def test_bytes_of_a_token_are_of_one_copy_unless_the_name_says_on_all_gpus() -> None:
    heads = [LayerGroup(2, "full", 2, 64, 64, None), LayerGroup(3, "sliding", 2, 64, 64, 16)]
    answer = memory_answer(Model("two KV heads", tuple(heads)), None, Holding(gpus=8), contexts=[100])
    of_a_layer = 2 * (64 + 64) * 2  # heads x values x bytes
    assert (answer["bytes_per_token"], answer["bytes_per_token_windows_full"]) == (5 * of_a_layer, 2 * of_a_layer)
    assert answer["bytes_per_token_on_all_gpus"] == 4 * 5 * of_a_layer  # 8 GPUs hold 4 copies of 2 heads
    assert answer["bytes_per_token_windows_full_on_all_gpus"] == 4 * 2 * of_a_layer
    assert answer["table"][0]["bytes_per_request"] == 4 * (2 * 100 + 3 * 16) * of_a_layer


def test_unknown_weights_leave_the_requests_unknown_until_they_are_given() -> None:
    model, gpu = read_model("NVIDIA-Nemotron-3-Nano-30B-A3B-BF16"), read_gpu("H200")
    unknown = memory_answer(model, gpu)
    assert unknown["weight_bytes"] is None
    assert all(row["requests_that_fit"] is None for row in unknown["table"])
    known = memory_answer(model, gpu, weights=60 * 10**9)
    assert all(row["requests_that_fit"] > 0 for row in known["table"])
    by_hand = memory_answer(model, budget_bytes=64 * GIB)
    assert by_hand["table"][0]["requests_that_fit"] == 64 * GIB // (512 * 6 * KIB)


def test_packed_weights_are_unknown_until_their_type_is_given() -> None:
    model = read_model("DeepSeek-V3")
    assert weight_bytes(model) is None
    assert weight_bytes(model, "fp8") == 671_026_419_200
    assert weight_bytes(model, "int4") == 335_513_209_600
    assert "packed (fp8)" in memory_answer(model, read_gpu("H200"), Holding(gpus=8))["assumed"][-1]


def test_weights_that_do_not_fit_leave_room_for_no_request() -> None:
    answer = memory_answer(read_model("Llama-3.1-70B"), read_gpu("L4"))
    assert answer["budget_bytes"] < 0
    assert {row["requests_that_fit"] for row in answer["table"]} == {0}
    assert answer["budget_explanation"][-1] == "= nothing for keys and values"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"model", "gpu", "gpus", "kv_dtype", "weights", "utilisation"}, []),
        ({"kv_per_token", "budget"}, []),
        ({"kv_per_token", "gpu", "gpus", "weights"}, []),
        ({"model"}, ["give gpu or budget, one of them is needed"]),
        ({"model", "kv_per_token", "gpu"}, ["give model or kv_per_token, not both"]),
        (
            {"gpu", "budget"},
            ["give model or kv_per_token, one of them is needed", "give gpu or budget, not both"],
        ),
        (
            {"kv_per_token", "budget", "kv_dtype", "overhead", "weights", "gpus"},
            [
                "kv_per_token is given by hand, so kv_dtype would have no effect",
                "budget is given by hand, so overhead, weights would have no effect",
                "gpus would have no effect, both memories are given by hand",
            ],
        ),
        ({"model", "gpu", "weights", "weight_dtype"}, ["give weights or weight_dtype, not both"]),
        ({"model", "overhead"}, ["give gpu or budget, one of them is needed"]),
    ],
)
def test_settings_that_contradict_each_other_or_would_do_nothing_are_told_all_at_once(
    given: set[str], words: list[str]
) -> None:
    assert clashes(given, budget_needed=True) == words


def test_unknown_types_are_refused_by_name() -> None:
    model = read_model("gpt2")
    with pytest.raises(InputError, match='kv_dtype: must be one of fp16, bf16, fp8, got "fp7"'):
        kv_bytes(model, 1, "fp7")
    with pytest.raises(InputError, match=r'weight_dtype: must be one of .*, got "fp7"'):
        weight_bytes(model, "fp7")
