"""[server.memory] of a study: models, GPUs and bytes by hand, what is refused, and the slots that follow."""

import json
import pickle
from dataclasses import replace
from pathlib import Path

import pytest

from sweep.errors import StudyError
from sweep.grid import points
from sweep.model.gpus import read_gpu
from sweep.model.memory import Holding, fit
from sweep.model.models import built_in_models, read_model, weight_bytes
from sweep.study import parse_study, read_study, settings, study_hash_parts

GIB = 2**30
LLAMA = {"model": "Llama-3.1-8B-Instruct", "gpu": "A100-SXM-80GB"}


def study(memory, grid=None, **server):
    return parse_study(
        {
            "workload": {"requests": 10, "output": {"distribution": "constant", "value": 5}},
            "server": {"slots": "memory", "context": 2048, "memory": memory, **server},
            "grid": grid or {},
        },
        "x.toml",
    )


def slots(memory, grid=None, **server):
    found = points(study(memory, grid, **server))
    return [cell.slots for point in found for cell in point.cells]


def faults(memory, grid=None, **server):
    with pytest.raises(StudyError) as refused:
        study(memory, grid, **server)
    return [line.removeprefix("x.toml: ") for line in refused.value.lines]


def test_slots_are_the_requests_that_fit_beside_the_weights():
    left = 72 * GIB - 2 * 8_030_261_248  # 0.9 x 80 GiB - weights of two bytes
    assert slots(LLAMA) == [left // (2048 * 128 * 2**10)]


def test_model_gpu_number_type_and_context_are_axes():
    grid = {
        "server.memory.model": ["Llama-3.1-8B-Instruct", "Qwen3-8B"],
        "server.memory.gpu": ["A100-SXM-80GB", "80 GB"],
        "server.memory.gpus": [1, 2],
        "server.memory.kv_dtype": ["fp16", "fp8"],
        "server.context": [2048, 8192],
    }
    found = slots({}, grid)
    assert len(found) == 32
    expected = [
        fit(
            read_model(model),
            int(gpus * size * 0.9) - weight_bytes(read_model(model)),
            context,
            Holding(kv_dtype, gpus),
        )
        for model in grid["server.memory.model"]
        for size in (read_gpu(gpu).memory_bytes for gpu in grid["server.memory.gpu"])
        for gpus in grid["server.memory.gpus"]
        for kv_dtype in grid["server.memory.kv_dtype"]
        for context in grid["server.context"]
    ]
    assert found == expected


@pytest.mark.parametrize("model", [model.name for model in built_in_models()])
def test_every_built_in_model_serves_a_study(model):
    assert slots({"model": model, "budget": "1 TiB"}, context=8192)[0] >= 1


def test_bytes_by_hand_stand_in_for_either_side():
    assert slots({"kv_per_token": "512 KiB", "budget": "64 GiB"}) == [64]
    assert slots({"kv_per_token": "512 KiB", "gpu": "80 GiB", "weights": "8 GiB"}) == [64]
    assert slots({"model": "Llama-2-7b-hf", "budget": "64 GiB"}) == [64]
    assert slots({"model": "Llama-2-7b-hf", "gpu": "80 GiB", "weights": "6 GiB", "overhead": "2 GiB"}) == [64]


def test_a_shared_prefix_is_held_once():
    budget = {"model": "Llama-2-7b-hf", "budget": "64 GiB"}
    grid = {"server.memory.shared_prefix": [0, 1024]}
    assert slots(budget, grid) == [64, (64 * GIB - 1024 * 2**19) // (1024 * 2**19)]


def test_windows_that_are_not_trimmed_leave_room_for_fewer():
    grid = {"server.memory.trim_windows": [True, False]}
    trimmed, whole = slots({"model": "gemma-3-4b-it", "budget": "8 GiB"}, grid, context=32_768)
    assert trimmed > 4 * whole


def test_a_cell_in_which_nothing_fits_says_why_and_the_others_run():
    grid = {"server.memory.model": ["Llama-3.1-70B", "Qwen3-8B"], "server.context": [512, 10**8]}
    (point,) = points(study({"gpu": "H200"}, grid))
    too_heavy = "131.4 GiB weights of Llama-3.1-70B leave nothing of the 126.4 GiB that are usable"
    too_long = "a request of 100,000,000 tokens needs 13.41 TiB, the budget is 111.1 GiB"
    assert [cell.error for cell in point.cells] == [too_heavy, too_heavy, None, too_long]
    assert [cell.slots > 0 for cell in point.cells] == [False, False, True, False]


def test_all_faults_of_the_memory_are_told_at_once_each_with_what_is_allowed():
    wrong = {
        "model": "lama-3.1-8b",
        "gpu": "A100-80",
        "kv_dtype": "fp7",
        "gpus": 0,
        "utilisation": 1.5,
        "overhead": "1",
        "weight_dtype": "bf8",
        "shared_prefix": -1,
        "trim_window": True,
    }
    lines = faults(wrong)
    expected = [
        "model: ... did you mean Llama-3.1-8B-Instruct?",
        "gpu: ... did you mean A100-SXM-80GB? Or give a size",
        'kv_dtype: must be one of fp16, bf16, fp8, got "fp7"; did you mean "fp8"?',
        "gpus: must be at least 1, got 0",
        "utilisation: must be at most 1, got 1.5",
        'overhead: the unit is missing in "1"',
        'weight_dtype: must be one of fp32, fp16, bf16, fp8, int8, int4, got "bf8"',
        "shared_prefix: must be at least 0, got -1",
        'trim_window: unknown key; did you mean "trim_windows"?',
    ]
    assert len(lines) == len(expected)
    for words in expected:
        key, _, rest = words.partition(": ")
        line = next(line for line in lines if line.startswith(f"server.memory.{key}: "))
        assert rest.removeprefix("... ") in line


@pytest.mark.parametrize(
    ("memory", "words"),
    [
        ({"model": "Qwen3-8B"}, "give gpu or budget, one of them is needed"),
        ({"gpu": "H200"}, "give model or kv_per_token, one of them is needed"),
        ({**LLAMA, "budget": "1 GiB"}, "give gpu or budget, not both"),
        ({**LLAMA, "kv_per_token": "1 KiB"}, "give model or kv_per_token, not both"),
        ({"kv_per_token": "1 KiB", "budget": "1 GiB", "kv_dtype": "fp8"}, "so kv_dtype would have no effect"),
        ({"model": "Qwen3-8B", "budget": "1 GiB", "weights": "1 GiB"}, "so weights would have no effect"),
        ({**LLAMA, "weights": "1 GiB", "weight_dtype": "fp8"}, "give weights or weight_dtype, not both"),
        (
            {"model": "DeepSeek-V3", "gpu": "H200", "gpus": 8},
            'the weights of DeepSeek-V3 are packed (fp8): give weight_dtype = "fp8" or the like, or weights, or budget',
        ),
        (
            {"model": "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", "gpu": "H200"},
            "the weights of NVIDIA-Nemotron-3-Nano-30B-A3B-BF16 are unknown: give weights, or budget in place of gpu",
        ),
        ({"kv_per_token": "1 KiB", "gpu": "H200"}, "are unknown: give weights"),
        ({"model": "Qwen3-8B", "gpu": "MI325X"}, 'give a size, such as "256 GB"'),
        ({**LLAMA, "gpus": 3}, "8 KV heads cannot be split evenly over 3 GPUs"),
    ],
)
def test_what_does_not_add_up_is_refused_in_one_line(memory, words):
    (line,) = faults(memory)
    assert line.startswith("server.memory: ")
    assert words in line


def test_a_fault_that_comes_with_a_value_of_an_axis_names_the_axis():
    grid = {"server.memory.model": ["Qwen3-8B", "DeepSeek-V3", "nope"]}
    packed, unknown = faults({"gpu": "H200", "gpus": 8}, grid)
    assert packed.startswith('grid."server.memory.model": "DeepSeek-V3": server.memory: the weights')
    assert unknown.startswith('grid."server.memory.model": "nope": model "nope" is neither a file nor known')
    (line,) = faults({**LLAMA, "shared_prefix": 1024}, {"server.context": [512, 2048]})
    assert line.startswith('grid."server.context": 512: server: shared_prefix: must be from 0 to less')


def test_a_study_takes_the_absolute_path_of_a_configuration_and_no_relative_one(tmp_path):
    config = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config))
    assert slots({"model": str(path), "budget": "1 MiB"}, context=2) == [2**20 // (2 * 2 * 64 * 2 * 2)]
    (line,) = faults({"model": "config.json", "budget": "1 GiB"})
    assert "the path of a config.json must be absolute" in line


def test_the_slots_that_were_found_are_part_of_what_rows_depend_on():
    found = study(LLAMA)
    assert study_hash_parts(found)["slots_found"] == slots(LLAMA)
    assert "slots_found" not in study_hash_parts(study({"budget": "1 GiB", "kv_per_token": "1 MiB"}, slots=4))
    other = replace(found, resolved=settings(study({**LLAMA, "overhead": "8 GiB"})))
    (before,), (after,) = points(found), points(other)
    assert before.study != after.study


def test_a_study_with_memory_survives_pickling():
    found = study(LLAMA)
    assert points(pickle.loads(pickle.dumps(found))) == points(found)


def test_options_of_the_command_line_change_the_memory(tmp_path):
    path = tmp_path / "x.toml"
    path.write_text(
        '[workload]\nrequests = 3\noutput = { distribution = "constant", value = 5 }\n'
        '[server]\nslots = "memory"\ncontext = 2048\n'
        'memory = { model = "Qwen3-8B", gpu = "H200" }\n'
    )
    read = read_study(Path(path), changes=["server.memory.model=Llama-3.1-8B-Instruct", 'server.memory.gpu="80 GiB"'])
    assert [cell.slots for point in points(read) for cell in point.cells] == slots(LLAMA)
