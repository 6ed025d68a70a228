"""Which layers of a model keep keys and values, and how many numbers each keeps for a token.

The keys that say so differ from family to family; `families` lists what each leaves unsaid, `layer_kinds` reads which
layer is what. Fixed states (Mamba, linear attention, a picture's keys in cross attention) are not counted.
"""

from collections import Counter
from typing import NamedTuple

from sweep.model.configs import BY_HAND, HEAD_DIM, HEADS, KV_HEADS, LAYERS, WIDTH, Config, shown
from sweep.model.families import (
    FAMILIES,
    MLA,
    PLAIN,
    Family,
    family_name,
    refuse_unaccounted,
    refuse_what_does_not_decode,
)
from sweep.model.layer_kinds import kinds_of


class LayerGroup(NamedTuple):
    """Layers that keep the same: `kv_heads * (key_dim + value_dim)` numbers a token, for the last `window` if given.

    `kind` is full, sliding, chunked or mla; for mla the key is the shared latent vector, the value its rotary part.
    """

    layers: int
    kind: str
    kv_heads: int
    key_dim: int
    value_dim: int
    window: int | None = None


class Layers(NamedTuple):
    """All layers of a model: those with a cache in groups, the others as (how many, what) pairs."""

    groups: tuple[LayerGroup, ...]
    without_kv: tuple[tuple[int, str], ...]
    kinds: tuple[str, ...]  # one for each layer, from the first


_ORDER = ("full", "sliding", "chunked", "mla")


def read_layers(config: Config) -> Layers:
    """The layers of the model in groups, from its configuration. Raises ModelError for what is not understood."""
    name = family_name(config)
    refuse_what_does_not_decode(config, name)
    family = FAMILIES.get(name, Family())
    config.defaults = family.defaults
    if name not in FAMILIES and name not in PLAIN:
        what = f"model_type {shown(name)} is not known here" if name else "there is no model_type"
        config.assume(f"{what}: its ordinary keys mean what they mean elsewhere")
    layers = config.needed(*LAYERS)
    kinds, shapes = (
        _block_configs(config, layers) if name == "nemotron-nas" else _ordinary(config, name, family, layers)
    )
    refuse_unaccounted(config, family)
    kept = Counter(shape for shape in shapes if shape is not None)
    groups = [shape._replace(layers=count) for shape, count in kept.items()]
    if not groups:
        raise config.fault("no layer keeps a KV cache, so memory sets no limit to the batch")
    others = Counter(kind for kind, shape in zip(kinds, shapes, strict=True) if shape is None)
    ordered = sorted(groups, key=lambda group: (_ORDER.index(group.kind), group))
    return Layers(tuple(ordered), tuple((count, kind) for kind, count in others.items()), tuple(kinds))


def query_heads(config: Config) -> int:
    """Attention heads of a layer."""
    return config.needed(*HEADS)


def head_dim(config: Config) -> int:
    """Numbers in one head: as given, or else width / heads."""
    given = config.whole(*HEAD_DIM)
    if given is not None:
        return given
    width, heads = config.needed(*WIDTH), query_heads(config)
    if width % heads:
        raise config.fault(
            f"head_dim is missing, and {WIDTH[0]} {width} is no multiple of {heads} heads; add it {BY_HAND}"
        )
    config.assume(f"head_dim = {width} / {heads} = {width // heads}")
    return width // heads


def kv_heads(config: Config) -> int:
    """Heads of keys and values of a layer: one, a group, or as many as there are query heads."""
    heads = query_heads(config)
    given = _kv_heads_given(config, family_name(config), heads)
    if given is None:
        config.assume(f"{KV_HEADS[0]} = {heads}, as many as heads")
        return heads
    if heads % given:
        raise config.fault(f"{heads} heads cannot share {given} KV heads evenly; mend the file {BY_HAND}")
    return given


def _kv_heads_given(config: Config, name: str, heads: int) -> int | None:
    match name:
        case (
            "falcon"
        ):  # n_head_kv and the new architecture mean what they say; otherwise the 71 of the file is not meant
            if config.flag("new_decoder_architecture", False) or config.keys.get("n_head_kv") is not None:
                return config.whole(*KV_HEADS)
            return 1 if config.flag("multi_query", True) else heads
        case "gpt_bigcode":
            return 1 if config.flag("multi_query", True) else heads
        case "chatglm":
            return config.needed("multi_query_group_num") if config.flag("multi_query_attention", False) else heads
        case "mpt" | "dbrx":
            attention = config.section("attn_config")
            if attention.value("attn_type") == "multiquery_attention":
                return 1
            return attention.whole("kv_n_heads")
        case _:
            return config.whole(*KV_HEADS)


def _ordinary(config: Config, name: str, family: Family, layers: int) -> tuple[list[str], list[LayerGroup | None]]:
    kinds = kinds_of(config, name, family, layers)
    reads_earlier = name in ("gemma3n_text", "gemma4_text")  # in other families the key may mean something else
    shared = (config.whole("num_kv_shared_layers", least=0) or 0) if reads_earlier else 0
    if shared >= layers:
        raise config.fault(f"num_kv_shared_layers {shared} of {layers} layers would leave none with a cache")
    for last in range(layers - shared, layers):
        kinds[last] = "keys of an earlier layer"
    shapes = {kind: _shape(config, name, kind) for kind in dict.fromkeys(kinds)}
    return kinds, [shapes[kind] for kind in kinds]


def _shape(config: Config, name: str, kind: str) -> LayerGroup | None:
    """What one layer of a kind keeps; None for a kind without a cache."""
    if kind not in _ORDER:
        return None
    if FAMILIES.get(name, Family()).accounts_for == MLA:
        return LayerGroup(1, "mla", 1, config.needed("kv_lora_rank"), config.needed("qk_rope_head_dim"))
    heads, dim = kv_heads(config), head_dim(config)
    if name == "gemma4_text" and config.value("use_bidirectional_attention") not in (None, False, "vision"):
        raise config.fault(f"use_bidirectional_attention is not read here; take it out {BY_HAND}")
    if kind == "full" and name == "gemma4_text":
        dim = config.needed("global_head_dim")
        if config.flag("attention_k_eq_v", False):  # one projection for both, but normalised apart: two caches
            heads = config.whole("num_global_key_value_heads") or heads
    if kind == "full":
        return LayerGroup(1, kind, heads, dim, dim)
    window = config.needed("attention_chunk_size" if kind == "chunked" else "sliding_window")
    longest = config.whole("max_position_embeddings")
    if longest is not None and window >= longest:
        config.assume(f"the window of {window:,} is never full: max_position_embeddings is {longest:,}")
        return LayerGroup(1, "full", heads, dim, dim)
    return LayerGroup(1, kind, heads, dim, dim, window)


def _block_configs(config: Config, layers: int) -> tuple[list[str], list[LayerGroup | None]]:
    """As `_ordinary`, where each layer has an entry of its own: no attention, or its own number of KV heads."""
    blocks = config.sequence("block_configs", layers)
    if blocks is None:
        raise config.fault(f"block_configs is missing; add it to the file {BY_HAND}")
    heads, dim = query_heads(config), head_dim(config)
    kinds: list[str] = []
    shapes: list[LayerGroup | None] = []
    for block in blocks:
        attention = Config(config.where, block if isinstance(block, dict) else {}, config.outer).section("attention")
        attention.part = f"{config.part}block_configs.attention."
        if attention.flag("no_op", False) or attention.flag("replace_with_linear", False):
            kinds.append("no attention")
            shapes.append(None)
            continue
        for key in ("window_length", "sparsify", "num_sink_tokens"):
            if attention.keys.get(key) not in (None, False):
                raise config.fault(f"{attention.part}{key} is not read here; take it out {BY_HAND}")
        group = attention.needed("n_heads_in_group")
        if heads % group:
            raise config.fault(f"{attention.part}n_heads_in_group: {heads} heads are no multiple of {group}")
        kinds.append("full")
        shapes.append(LayerGroup(1, "full", heads // group, dim, dim))
    return kinds, shapes
