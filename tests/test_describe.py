import json
import tomllib
from pathlib import Path

import pytest
from jsonschema import Draft7Validator

import sweep
from sweep.errors import InputError
from sweep.study import parse_study
from sweep.study.describe import json_schema, markdown, new_study, write_new

ROOT = Path(__file__).parents[1]
STUDIES = sorted((ROOT / "studies").glob("*.toml"))
AGAIN = "; make it again: sweep schema > studies/study.schema.json; sweep schema --markdown > docs/study.md"


def test_the_schema_and_the_page_that_are_kept_are_those_of_the_code():
    kept = json.loads((ROOT / "studies" / "study.schema.json").read_text())
    assert kept == json_schema(), f"studies/study.schema.json is not up to date{AGAIN}"
    assert (ROOT / "docs" / "study.md").read_text().rstrip() == markdown().rstrip(), f"docs/study.md{AGAIN}"


@pytest.mark.parametrize("path", STUDIES, ids=lambda path: path.stem)
def test_every_study_names_the_schema_and_satisfies_it(path):
    text = path.read_text()
    assert text.startswith("#:schema study.schema.json\n")
    assert list(Draft7Validator(json_schema()).iter_errors(tomllib.loads(text))) == []


@pytest.mark.parametrize(
    "wrong", ['slots = "16"', "slots = true", "slot = 16", "step_ms = -1", "context = 0", 'memory = "64 GiB"']
)
def test_an_editor_sees_the_faults_that_a_schema_can_say(wrong):
    document = tomllib.loads(f'[workload]\nrequests = 5\noutput = {{distribution = "lab"}}\n[server]\n{wrong}')
    assert list(Draft7Validator(json_schema()).iter_errors(document)) != []


def test_the_study_to_start_from_is_commented_runs_and_satisfies_the_schema(tmp_path):
    document = tomllib.loads(new_study())
    assert list(Draft7Validator(json_schema()).iter_errors(document)) == []
    assert new_study().count("#") > 10
    results = sweep.run(parse_study({**document, "replicates": 100}, "new.toml"), tmp_path, report=False)
    assert len(results.check()) == 1


def test_a_new_study_never_takes_the_place_of_a_file(tmp_path):
    write_new(tmp_path / "mine.toml")
    assert (tmp_path / "mine.toml").read_text() == new_study()
    assert json.loads((tmp_path / "study.schema.json").read_text()) == json_schema()
    with pytest.raises(InputError, match="exists already"):
        write_new(tmp_path / "mine.toml")
    with pytest.raises(InputError, match="cannot be written: No such file or directory"):
        write_new(tmp_path / "absent" / "mine.toml")


def test_the_page_describes_every_table_and_distribution():
    page = markdown()
    for part in json_schema()["definitions"].values():
        for key, field in part.get("properties", {}).items():
            assert f"`{key}`" in page or key == "distribution"
            assert field.get("description") or "const" in field, f"{key} has no description"
