"""What each layer of a model is: full or sliding attention, chunks, a state-space layer and so on, from the first on.

From an explicit list if the file has one, else by the rule of its family; what a layer of a kind keeps is in `layers`.
"""

from sweep.model.configs import BY_HAND, Config, shown
from sweep.model.families import Family, family_name

_KINDS = {  # entries of layer_types and its forerunners
    "full_attention": "full",
    "attention": "full",
    "sliding_attention": "sliding",
    "chunked_attention": "chunked",
    "linear_attention": "linear attention",
    "mamba": "mamba",
    "mamba2": "mamba",
    "conv": "convolution",
    "mlp": "mlp",
    "moe": "experts",
}
_SIGNS = {"*": "full", "M": "mamba", "-": "mlp", "E": "experts"}  # of hybrid_override_pattern


def kinds_of(config: Config, name: str, family: Family, layers: int) -> list[str]:
    """What each layer is, from an explicit list if there is one, else by the rule of the family."""
    for key in ("layer_types", "layers_block_type"):
        listed = config.sequence(key, layers)
        if listed is not None:
            return [_kind(config, key, entry) for entry in listed]
    match name:
        case "nemotron_h":
            return _signs(config, layers)
        case "minimax":
            return _flagged(config, layers)
        case "minimax_m2" if config.keys.get("attn_type_list") is not None:
            return _flagged(config, layers)
        case "jamba":
            period, offset = config.needed("attn_layer_period"), config.whole("attn_layer_offset", least=0)
            if offset is None:
                raise config.fault(f"attn_layer_offset is missing; add it to the file {BY_HAND}")
            return ["full" if layer % period == offset else "mamba" for layer in range(layers)]
        case "bamba" | "granitemoehybrid":
            return _at(config, "attn_layer_indices", layers, "full", "mamba")
        case "lfm2" | "lfm2_moe":
            return _at(config, "full_attn_idxs", layers, "full", "convolution")
        case "kimi_linear":
            inner = config.section("linear_attn_config")
            return _at(inner, "full_attn_layers", layers, "full", "linear attention", first=1)
        case "mllama_text_model":
            return _at(config, "cross_attention_layers", layers, "cross attention", "full")
        case "mpt" if (config.section("attn_config").value("sliding_window_size") or -1) != -1:
            raise config.fault(f"attn_config.sliding_window_size is not read here; take it out {BY_HAND}")
        case _:
            return _by_rule(config, family, layers)


def _by_rule(config: Config, family: Family, layers: int) -> list[str]:
    every = family.every
    match family.window:
        case "interval":
            every = config.whole("full_attention_interval") or every
            return ["linear attention" if (layer + 1) % every else "full" for layer in range(layers)]
        case "chunked":
            return _chunked(config, every, layers)
        case "every" if config.whole("sliding_window") is not None:
            return ["sliding"] * layers
        case "late" if config.flag("use_sliding_window", False) and config.whole("sliding_window") is not None:
            full = config.needed("max_window_layers")
            return ["full" if layer < full else "sliding" for layer in range(layers)]
        case "pattern":
            return _patterned(config, every, layers)
    return ["full"] * layers


def _patterned(config: Config, every: int, layers: int) -> list[str]:
    """All layers slide but every n-th, n being the pattern; or a pattern of letters says of each what it is."""
    names = "sliding_window_pattern", "_sliding_window_pattern"
    pattern = config.value(*names)
    if config.whole("sliding_window") is None:
        return ["full"] * layers
    if isinstance(pattern, str):
        return _lettered(config, pattern, layers)
    given = config.whole(*names)
    if given is None:
        config.assume(f"of each {every} layers the last is full, the others slide: the rule of the family")
    return ["sliding" if (layer + 1) % (given or every) else "full" for layer in range(layers)]


def _lettered(config: Config, pattern: str, layers: int) -> list[str]:
    """L for a layer that slides and G for a full one, from the first on and again; the last of all layers is full.

    As the configuration of EXAONE 4.0 describes it (transformers, Exaone4Config); no other family is known to have it.
    """
    key = f"{config.part}sliding_window_pattern: {shown(pattern)}"
    how = f"give layer_types, a kind for each layer, {BY_HAND}"
    if family_name(config) != "exaone4":
        raise config.fault(f"{key} is a pattern of letters, whose meaning is known for model_type exaone4 only; {how}")
    if not pattern or set(pattern) - set("LG"):
        raise config.fault(f"{key} must be made of L (sliding) and G (full), such as LLLG; {how}")
    repeated = [pattern[layer % len(pattern)] for layer in range(layers - 1)]
    config.assume("the last layer is full, whatever the pattern: the rule of the family")
    return [*("sliding" if letter == "L" else "full" for letter in repeated), "full"]


def _chunked(config: Config, every: int, layers: int) -> list[str]:
    if config.whole("attention_chunk_size") is None:
        return ["full"] * layers
    rotary = config.sequence("no_rope_layers") or None
    if rotary is None:
        every = config.whole("no_rope_layer_interval") or every
        config.assume(f"of each {every} layers the last is full, the others attend within chunks")
        return ["chunked" if (layer + 1) % every else "full" for layer in range(layers)]
    config.sequence("no_rope_layers", layers)
    return ["chunked" if config.checked("no_rope_layers", flag, 0, 1) else "full" for flag in rotary]


def _kind(config: Config, key: str, entry: object) -> str:
    if not isinstance(entry, str) or entry not in _KINDS:
        raise config.fault(
            f"{config.part}{key}: {shown(entry)} is no kind of layer known here; use {', '.join(_KINDS)}, {BY_HAND}"
        )
    return _KINDS[entry]


def _signs(config: Config, layers: int) -> list[str]:
    pattern = config.value("hybrid_override_pattern")
    if not isinstance(pattern, str) or len(pattern) != layers or set(pattern) - set(_SIGNS):
        signs = " ".join(_SIGNS)
        raise config.fault(f"hybrid_override_pattern: needs one of {signs} for each of {layers} layers {BY_HAND}")
    return [_SIGNS[sign] for sign in pattern]


def _flagged(config: Config, layers: int) -> list[str]:
    flags = config.sequence("attn_type_list", layers)
    if flags is None:
        raise config.fault(f"attn_type_list (or layer_types) is missing; add it to the file {BY_HAND}")
    return ["full" if config.checked("attn_type_list", flag, 0, 1) else "linear attention" for flag in flags]


def _at(config: Config, key: str, layers: int, here: str, elsewhere: str, first: int = 0) -> list[str]:
    """`here` for the layers that a list of indexes names, `elsewhere` for all others."""
    listed = config.sequence(key)
    if listed is None:
        raise config.fault(f"{config.part}{key} is missing; add it to the file {BY_HAND}")
    indexes = {config.checked(key, index, first, layers - 1 + first) for index in listed}
    return [here if layer + first in indexes else elsewhere for layer in range(layers)]
