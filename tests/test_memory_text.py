"""`sweep memory` and `sweep list`: what they print, and what they refuse."""

import json
import os
import pickle
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest

from sweep.commands import listing
from sweep.commands.memory_text import Asked, answer, as_json, text
from sweep.errors import InputError, SettingError, SweepError
from sweep.metrics import METRICS
from sweep.model.distributions import Distribution
from sweep.model.gpus import built_in_gpus
from sweep.model.memory import fit
from sweep.model.models import built_in_models, read_model, weight_bytes
from sweep.study import parse_study, settings

GIB, KIB = 2**30, 2**10
ROOT = Path(__file__).parents[1]
CONFIGS = Path(__file__).parents[2] / "shared" / "data" / "configs"


def shown(width: int = 100, **options: Any) -> str:
    return text(answer(Asked(**options)), width)


def sweep(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "sweep", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, **environment})


def rows(page: str) -> list[list[str]]:
    """The words of the table, without the bars."""
    lines = page.splitlines()
    first = next(at for at, line in enumerate(lines) if line.lstrip().startswith("context "))
    table = lines[first + 1 :]
    return [line.replace("#", "").split() for line in table[: table.index("") if "" in table else None]]


def test_the_answer_shows_its_work_from_the_layers_to_the_requests() -> None:
    page = shown(model="DeepSeek-V3", gpu="H200", gpus=8, weight_dtype="fp8", context=[2048, 8192])
    assert page.startswith("DeepSeek-V3 on 8 x H200-SXM-141GB, keys and values in fp16\n")
    assert "  8 x 140.4 GiB x 0.9 = 1011 GiB usable\n  - 624.9 GiB weights\n  - 0 B overhead\n" in page
    assert "  = 385.9 GiB for keys and values\n" in page
    assert "671,026,419,200 parameters of 8 bits" in page
    left = int(8 * read_gpu_bytes("H200-SXM-141GB") * 0.9) - 671_026_419_200
    assert [row[-1] for row in rows(page)] == [str(left // (8 * 70_272 * n)) for n in (2048, 8192)]


def read_gpu_bytes(name: str) -> int:
    return next(gpu.memory_bytes for gpu in built_in_gpus() if gpu.name == name) or 0


def test_the_line_on_the_bytes_of_a_token_is_a_sum_to_check_by_hand() -> None:
    page = shown(model="DeepSeek-V3", gpu="H200", weight_dtype="fp8")
    assert "  61 layers x (512 + 64) values x 2 bytes = 70,272 bytes per token\n" in page


def test_the_reference_table_is_printed_with_bars_in_proportion() -> None:
    page = shown(kv_per_token="512 KiB", budget="64 GiB", context=[512 * 2**power for power in range(7)] + [2500])
    assert [row[-1] for row in rows(page)] == ["256", "128", "64", "32", "16", "8", "4", "52"]
    bars = [line.count("#") for line in page.splitlines() if line.endswith("#")]
    assert bars == [40, 20, 10, 5, 2, 1, 1, 8]


def test_a_request_that_fits_no_more_has_no_bar_and_the_budget_says_why() -> None:
    page = shown(model="Llama-3.1-70B", gpu="L4", context=[512])
    assert rows(page) == [["512", "160", "MiB", "0"]]
    assert "  = nothing for keys and values\n" in page
    assert "#" not in page


def test_overhead_and_utilisation_are_terms_of_the_budget() -> None:
    options = {"model": "Llama-3.1-8B-Instruct", "gpu": "80 GiB", "utilisation": 0.95, "overhead": "4 GiB"}
    found = answer(Asked(**options))
    assert found["budget_bytes"] == 76 * GIB - 2 * 8_030_261_248 - 4 * GIB
    assert "  1 x 80 GiB x 0.95 = 76 GiB usable\n  - 14.96 GiB weights\n  - 4 GiB overhead\n" in text(found, 80)


def test_weights_given_by_hand_take_the_place_of_those_derived() -> None:
    found = answer(Asked(model="Qwen3-8B", gpu="80 GiB", weights="8 GiB"))
    assert found["budget_bytes"] == 64 * GIB
    assert "assumed: weights of 8,589,934,592 bytes, given by hand" in text(found, 80)


def test_without_a_gpu_the_bytes_are_told_and_the_requests_unknown() -> None:
    page = shown(model="gpt2", context=[512])
    assert "unknown without a GPU or a budget" in page
    assert rows(page) == [["512", "18", "MiB", "?"]]


def test_unknown_weights_are_told_with_what_to_give() -> None:
    page = shown(model="DeepSeek-V3", gpu="H200", context=[512], width=200)
    assert "  unknown, as the weights are\n" in page
    assert "the weights are packed (fp8), their bytes unknown; give --weights or --weight-dtype" in page


def test_a_shared_prefix_is_shown_beside_what_fits_without_it() -> None:
    page = shown(kv_per_token="512 KiB", budget="64 GiB", context=[2048], shared_prefix=1024)
    assert rows(page) == [["2,048", "1", "GiB", "127", "64"]]
    assert "The first 1,024 tokens of every request are the same and held once." in page


def test_the_lab_and_the_command_agree_on_what_a_shared_prefix_leaves_room_for() -> None:
    page = shown(kv_per_token="512 KiB", budget="64 GiB", context=[2500], shared_prefix=1500)
    assert rows(page)[0][-2:] == ["129", "52"]
    assert "129 such requests fit at once, not 52" in " ".join(sweep("lab").stdout.split())


def test_contexts_that_a_shared_prefix_fills_are_left_out_unless_asked_for() -> None:
    found = answer(Asked(model="gpt2", budget="1 GiB", shared_prefix=2048))
    assert [row["context"] for row in found["table"]] == [4096, 8192, 16_384, 32_768, 65_536, 131_072]
    with pytest.raises(InputError, match="--shared-prefix: must be from 0 to less than the context 2,048, got 2,048"):
        answer(Asked(model="gpt2", budget="1 GiB", shared_prefix=2048, context=[2048]))


def test_the_answer_says_whether_windows_are_trimmed() -> None:
    trimmed = shown(model="Mistral-7B-v0.1", budget="64 GiB", context=[32_768])
    whole = shown(model="Mistral-7B-v0.1", budget="64 GiB", context=[32_768], no_trim_windows=True)
    assert "windows are trimmed: 0 bytes per token once every window is full" in trimmed
    assert "windows are not trimmed: every layer keeps every token" in whole
    assert (rows(trimmed)[0][-1], rows(whole)[0][-1]) == ("128", "16")


def test_keys_read_and_assumed_of_a_file_are_listed(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64}))
    page = shown(model=str(path), budget="1 GiB")
    assert "read: num_hidden_layers, " in page
    assert "assumed: num_key_value_heads = 4, as many as heads" in page
    assert "assumed: head_dim = 64 / 4 = 16" in page


def test_text_is_ascii_and_no_line_of_notes_is_wider_than_the_terminal() -> None:
    page = shown(60, model="gemma-3-4b-it", gpu="L4", shared_prefix=100)
    assert page.isascii()
    assert all(len(line) <= 60 for line in page.splitlines() if line.startswith(("read", "assumed", "  give")))


def test_json_holds_the_names_that_others_rely_on() -> None:
    found = json.loads(as_json(answer(Asked(model="Mistral-7B-v0.1", gpu="A100-SXM-80GB", context=[2048, 8192]))))
    model = read_model("Mistral-7B-v0.1")
    assert (found["bytes_per_token"], found["bytes_per_token_windows_full"]) == (128 * KIB, 0)
    assert (found["parameters"], found["weight_bytes"]) == (model.parameters, weight_bytes(model))
    assert [set(row) for row in found["table"]] == [{"context", "bytes_per_request", "requests_that_fit"}] * 2
    assert found["table"][1]["requests_that_fit"] == fit(model, found["budget_bytes"], 8192)
    assert found["keys_read"] == []


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ({}, ["give --model or --kv-per-token, one of them is needed"]),
        ({"model": "gpt2", "gpu": "L4", "budget": "1 GiB"}, ["give --gpu or --budget, not both"]),
        (
            {"kv_per_token": "1 KiB", "budget": "1 GiB", "kv_dtype": "fp8", "no_trim_windows": True},
            ["--kv-per-token is given by hand, so --kv-dtype, --no-trim-windows would have no effect"],
        ),
        (
            {"model": "gpt2", "gpu": "L4", "overhead": "1", "weights": "1 X"},
            ['--overhead: the unit is missing in "1"', '--weights: unit "X" is unknown in "1 X"'],
        ),
        ({"model": "gpt2", "gpu": "L4", "gpus": 0}, ["--gpus: must be from 1 to 1024, got 0"]),
        ({"model": "gpt2", "gpu": "L4", "gpus": 7}, ["--gpus: 12 KV heads cannot be split evenly over 7 GPUs; take"]),
        ({"model": "gpt2", "gpu": "L4", "utilisation": float("nan")}, ["--utilisation: must be above 0 and at most 1"]),
        ({"model": "gpt2", "gpu": "L4", "context": [8, 0]}, ["--context: must be from 1 to 1,099,511,627,776 tokens"]),
        ({"model": "gpt2", "gpu": "H100"}, ['--gpu: GPU "H100" may be H100-PCIe-80GB or H100-SXM-80GB; name one']),
        ({"model": "gpt2", "gpu": "MI325X"}, ["--gpu: the memory that the driver of MI325X reports is unknown; give"]),
        ({"model": "gpt2", "gpu": "80"}, ['--gpu: the unit is missing in "80"; use one of']),
        ({"model": "gpt2", "overhead": "1 GiB"}, ["without --gpu, --overhead would have no effect"]),
        ({"kv_per_token": "0 B", "budget": "1 GiB"}, ["--kv-per-token: must be from 1 B to 1 TiB, got 0 B"]),
        (
            {"model": "gtp2", "gpu": "RTX-4900", "gpus": 0, "kv_dtype": "fp7", "context": [0], "weight_dtype": "int3"},
            [
                '--model: model "gtp2" is neither a file nor known; did you mean gpt2?',
                '--gpu: GPU "RTX-4900" is not known; did you mean RTX-4090? Or give a size',
                "--gpus: must be from 1 to 1024, got 0",
                '--kv-dtype: must be one of fp16, bf16, fp8, got "fp7"',
                "--context: must be from 1 to",
                '--weight-dtype: must be one of fp32, fp16, bf16, fp8, int8, int4, got "int3"',
            ],
        ),
    ],
)
def test_what_is_not_usable_is_refused_with_a_line_for_each(options: dict[str, Any], lines: list[str]) -> None:
    with pytest.raises(SweepError) as refused:
        answer(Asked(**options))
    assert len(refused.value.lines) == len(lines)
    for line, start in zip(refused.value.lines, lines, strict=True):
        assert line.startswith(start)


def test_a_setting_that_is_refused_in_another_process_keeps_its_name_and_its_reason() -> None:
    refused = pickle.loads(pickle.dumps(SettingError("gpus", "must be from 1 to 1024, got 0")))
    assert (refused.setting, refused.reason) == ("gpus", "must be from 1 to 1024, got 0")
    assert refused.lines == ("gpus: must be from 1 to 1024, got 0",)


@pytest.mark.skipif(not CONFIGS.exists(), reason="the folder of real configurations is not here")
def test_the_command_reads_a_real_configuration() -> None:
    path = CONFIGS / "Qwen--Qwen3-8B.json"
    done = sweep("memory", "--model", str(path), "--budget", "64 GiB", "--context", "2048,8192", "--json")
    assert (done.returncode, done.stderr) == (0, "")
    found = json.loads(done.stdout)
    assert found["bytes_per_token"] == 144 * KIB
    assert [row["requests_that_fit"] for row in found["table"]] == [227, 56]


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["memory", "--model", "Llama-9", "--gpu", "L4"], '--model: model "Llama-9" is neither a file nor known'),
        (["memory", "--model", ".", "--gpu", "L4"], "--model: .: is a directory"),
        (["memory", "--model", "gpt2", "--budget", "1 GiB", "--context", "1,x"], '--context: "1,x" is not a list'),
        (["list", "modles"], 'list: must be one of models, gpus, profiles, distributions, metrics, got "modles"'),
    ],
)
def test_the_command_refuses_in_one_line_with_status_2(arguments: list[str], line: str) -> None:
    done = sweep(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1


def test_the_page_on_memory_shows_what_its_command_prints() -> None:
    page = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
    command, shown_there = re.findall(r"```(?:sh|text)\n(.*?)```", page, re.DOTALL)[:2]
    program, *arguments = shlex.split(command)
    assert program == "sweep"
    assert sweep(*arguments, COLUMNS="100").stdout == shown_there


def test_the_study_on_the_page_on_memory_can_be_read() -> None:
    page = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
    (tables,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    workload = {"requests": 10, "output": {"distribution": "constant", "value": 5}}
    study = parse_study({"workload": workload, **tomllib.loads(tables)}, "page")
    assert len(settings(study)) == 4


def test_lists_name_all_that_is_built_in() -> None:
    expected = {
        "models": [model.name for model in built_in_models()],
        "gpus": [gpu.name for gpu in built_in_gpus()],
        "metrics": list(METRICS),
    }
    for what, names in expected.items():
        body = listing.text(what).split("\n\n")[0].splitlines()[1:]
        assert [line.split()[0] for line in body] == names
    kinds = get_args(get_args(Distribution)[0])
    found = [line.split("(")[0] for line in listing.text("distributions").splitlines() if not line.startswith(" ")]
    assert found == [kind.model_fields["distribution"].default for kind in kinds]


def test_distributions_are_listed_with_their_parameters_and_defaults() -> None:
    listed = listing.text("distributions")
    assert 'lognormal(mean, cv, max_tokens = 4,096, beyond = "clip"): ' in listed
    assert "lab(first_seed = 0): " in listed


@pytest.mark.parametrize("what", ["models", "gpus", "distributions", "metrics"])
def test_a_list_is_printed_in_ascii_without_trailing_space(what: str) -> None:
    lines = listing.text(what).splitlines()
    assert all(line.isascii() and line == line.rstrip() and len(line) <= 125 for line in lines)
