"""Workers that are processes, or machines: the same bytes, whatever becomes of a worker."""

import os
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
from small import bytes_of, study
from test_reliability import Counting, run_cli

import sweep
from sweep.errors import WorkerError
from sweep.executors.machine import usable_cores
from sweep.executors.workers import ATTEMPTS, HOPELESS, execute, workers_of
from sweep.grid import Chunk, points
from sweep.manifest import versions
from sweep.results import Store
from sweep.runner import work


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch):
    """Chunks of one block, so that a thousand replicates are several shards and the last is partial."""
    monkeypatch.setattr("sweep.runner.CHUNK_NS", 0.0)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    """The bytes of the study run on threads of this process."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sweep.runner.CHUNK_NS", 0.0)
        sweep.run(study(), folder / "short", report=False)
        sweep.run(study(replicates=12_000), folder / "long", report=False)
    return {name: bytes_of(folder / name) for name in ("short", "long")}


class Unreliable(Executor):
    """Does the work at once, but for what `fails` says of a chunk and the number of the attempt at it."""

    def __init__(self, fails):
        self.fails, self.attempts, self.flying, self.most = fails, Counter(), 0, 0
        self._max_workers = 3

    def submit(self, work, chunk):
        future = Future()
        self.attempts[chunk.first] += 1
        if self.fails(chunk, self.attempts[chunk.first]):
            future.set_exception(ConnectionError("the worker is gone"))
        else:
            future.set_result(work(chunk))
        return future


# ---- workers that fail


def test_a_chunk_whose_worker_is_lost_is_given_out_again(tmp_path):
    unreliable = Unreliable(lambda _, attempt: attempt < ATTEMPTS)
    results = sweep.run(study(grid={}), tmp_path / "lost", executor=unreliable, report=False)
    sweep.run(study(grid={}), tmp_path / "once", report=False)
    assert set(unreliable.attempts.values()) == {ATTEMPTS}
    assert bytes_of(tmp_path / "lost") == bytes_of(tmp_path / "once")
    assert results.failures == []


def test_a_chunk_that_no_worker_can_do_is_a_failure_and_the_others_finish(tmp_path):
    unreliable = Unreliable(lambda chunk, _: chunk.first == 256)
    results = sweep.run(study(grid={}), tmp_path, executor=unreliable, report=False)
    assert results.cells["error"].to_list() == ["ConnectionError: the worker is gone (replicates 256 to 383)"]
    assert len(results._store.have()) == 7
    assert sweep.run(study(grid={}), tmp_path, report=False).cells["error"].to_list() == [None]


def test_workers_that_can_do_nothing_are_given_up_in_one_line(tmp_path):
    unreliable = Unreliable(lambda *_: True)
    with pytest.raises(WorkerError) as error:
        sweep.run(study(replicates=12_000), tmp_path, executor=unreliable, report=False)
    assert error.value.lines == ("the workers cannot simulate any chunk: ConnectionError: the worker is gone",)
    assert sum(unreliable.attempts.values()) <= (HOPELESS + 2 * 3) * ATTEMPTS


def test_few_chunks_are_in_flight():
    class Slow(ThreadPoolExecutor):
        flying = most = 0

        def submit(self, *arguments):
            self.flying += 1
            self.most = max(self.most, self.flying)
            return super().submit(*arguments)

    def done(*_):
        slow.flying -= 1

    (point, *_) = points(study())
    with Slow(3) as slow:
        execute((Chunk(point, place, place + 1) for place in range(200)), slow, lambda chunk: chunk.first, done)
        assert slow.most == 2 * 3


def test_other_versions_are_refused_with_what_differs():
    (point, *_) = points(study())
    with pytest.raises(WorkerError, match=r"numpy is 0\.1 here and .* there; install the same"):
        work(Chunk(point, 0, 1), "rows", {**versions(), "numpy": "0.1"})


def test_a_run_on_workers_of_other_versions_ends_before_anything_is_kept(tmp_path, monkeypatch):
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor:
        monkeypatch.setattr("sweep.runner.versions", lambda: {**versions(), "polars": "0.1"})
        with pytest.raises(WorkerError, match=r"other versions than this process: polars is 0\.1 here"):
            sweep.run(study(), tmp_path, executor=executor, report=False)
    assert Store.open(tmp_path).have() == frozenset()


def test_a_pool_that_lost_a_process_is_said_in_one_line_and_what_was_finished_is_kept(tmp_path, undisturbed):
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as executor:
        killing = Counting(lambda: os.kill(next(iter(executor._processes)), signal.SIGKILL))
        with pytest.raises(WorkerError, match=r"a worker ended abruptly.*run the study again to go on"):
            sweep.run(study(replicates=12_000), tmp_path, executor=executor, report=False, watch=killing)
    assert len(Store.open(tmp_path).have()) >= 3
    sweep.run(study(replicates=12_000), tmp_path, report=False)
    assert bytes_of(tmp_path) == undisturbed["long"]


@pytest.mark.skipif(sys.platform != "linux", reason="where processes can be forked")
def test_a_pool_that_would_fork_gives_way_to_one_that_spawns(tmp_path):
    sweep.run(study(), tmp_path / "threads", report=False)
    with ProcessPoolExecutor(2, mp_context=get_context("fork")) as executor:
        sweep.run(study(), tmp_path / "forks", executor=executor, report=False)
        assert not executor._processes  # none of its own was ever started
    assert bytes_of(tmp_path / "forks") == bytes_of(tmp_path / "threads")


def test_threads_that_cannot_be_started_are_said_in_one_line(tmp_path, monkeypatch):
    def start(_):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("threading.Thread.start", start)
        with pytest.raises(WorkerError, match=r"can't start new thread; try fewer with --jobs"):
            sweep.run(study(), tmp_path, report=False)


# ---- cores


@pytest.mark.parametrize(
    ("files", "cores"),
    [
        ({"cpu.max": "150000 100000"}, 2),
        ({"cpu.max": "50000 100000"}, 1),
        ({"cpu.max": "max 100000"}, 64),
        ({"cpu/cpu.cfs_quota_us": "300000", "cpu/cpu.cfs_period_us": "100000"}, 3),
        ({"cpu/cpu.cfs_quota_us": "-1", "cpu/cpu.cfs_period_us": "100000"}, 64),
        ({"cpu.max": "nonsense"}, 64),
        ({}, 64),
    ],
)
def test_cores_are_those_of_the_container(tmp_path, monkeypatch, files, cores):
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.setattr("sweep.executors.machine.CGROUP", tmp_path)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(64)), raising=False)
    assert usable_cores() == cores


# ---- dask


@pytest.fixture(scope="module")
def cluster():
    """A scheduler and three worker processes of this machine."""
    distributed = pytest.importorskip("distributed", reason="dask.distributed is not installed")
    options = {"n_workers": 3, "threads_per_worker": 1, "dashboard_address": None, "silence_logs": 50}
    with distributed.LocalCluster(processes=True, worker_dashboard_address=None, **options) as started:
        yield started


@pytest.mark.filterwarnings("ignore")
def test_a_dask_cluster_gives_the_same_bytes_with_a_worker_killed_half_way(tmp_path, undisturbed, cluster):
    from distributed import Client

    with Client(cluster) as client:
        victim = next(iter(client.run(os.getpid).values()))
        half_way = Counting(lambda: os.kill(victim, signal.SIGKILL), after=94)
        executor = client.get_executor(pure=False)
        assert workers_of(executor) == 3
        results = sweep.run(study(replicates=12_000), tmp_path, executor=executor, report=False, watch=half_way)
    assert half_way.finished == half_way.planned == 2 * 94  # none lost, none twice
    assert results.failures == []
    assert bytes_of(tmp_path) == undisturbed["long"]


@pytest.mark.filterwarnings("ignore")
def test_sweep_run_takes_the_address_of_a_scheduler_or_its_file(tmp_path, undisturbed, cluster, monkeypatch):
    (tmp_path / "small.toml").write_text(study().source)
    given = ["run", tmp_path / "small.toml", "--no-report"]
    assert run_cli(monkeypatch, *given, "-o", tmp_path / "a", "--dask", cluster.scheduler_address) == 0
    (tmp_path / "scheduler.json").write_text(f'{{"address": "{cluster.scheduler_address}"}}')
    monkeypatch.setenv("SWEEP_DASK", str(tmp_path / "scheduler.json"))
    assert run_cli(monkeypatch, *given, "-o", tmp_path / "b") == 0
    assert bytes_of(tmp_path / "a") == bytes_of(tmp_path / "b") == undisturbed["short"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("address", ["tcp://127.0.0.1:9", "nonsense", "sip://x:1"])
def test_a_scheduler_that_is_not_there_is_said_in_one_line(tmp_path, monkeypatch, capsys, address):
    pytest.importorskip("distributed", reason="dask.distributed is not installed")
    monkeypatch.setattr("sweep.executors.cluster.ANSWER_S", 1)
    (tmp_path / "small.toml").write_text(study().source)
    assert run_cli(monkeypatch, "run", tmp_path / "small.toml", "-o", tmp_path / "a", "--dask", address) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"--dask {address}: no scheduler answers there")


def test_dask_that_is_not_installed_is_said_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "dask.distributed", None)
    (tmp_path / "small.toml").write_text(study().source)
    assert run_cli(monkeypatch, "run", tmp_path / "small.toml", "-o", tmp_path / "a", "--dask", "tcp://x:1") == 2
    assert 'pip install "batch-sweep[distributed]"' in capsys.readouterr().err


def test_nothing_of_dask_is_loaded_without_a_cluster(tmp_path):
    program = "import sys, sweep; sweep.run(*sys.argv[1:], report=False); assert 'distributed' not in sys.modules"
    (tmp_path / "small.toml").write_text(study(replicates=10).source)
    subprocess.run([sys.executable, "-c", program, tmp_path / "small.toml", tmp_path / "a"], check=True)
