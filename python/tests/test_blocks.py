"""Blocks through the package: stored, found, loaded, committed, removed; and what errors say."""

from __future__ import annotations

import json
import os
import pickle
import unittest
from pathlib import Path

from common import BLOCK, SHARD, TENSOR, StoreCase, block_id, content

import kvpath
from kvpath import Shard, Status


class Blocks(StoreCase):
    def test_a_block_comes_back(self) -> None:
        store = self.open()
        data = self.stored(store, 1)
        back = bytearray(BLOCK)
        store.load_block(block_id(1), back).wait()
        self.assertEqual(back, data)
        self.assertEqual(Path(self.root, "data", block_id(1).hex()).read_bytes(), data)

    def test_shards_in_any_order_and_tensors_apart(self) -> None:
        store, data = self.open(), content(2)
        pieces = [data[at : at + TENSOR] for at in range(0, BLOCK, TENSOR)]
        order = [2, 0, 3, 1]
        dump = [Shard(block_id(2), at, pieces[2 * at : 2 * at + 2]) for at in order]
        store.dump(dump[:2]).wait()
        self.assertEqual(store.lookup([block_id(2)]), [False])
        store.dump(dump[2:]).wait()
        self.assertEqual(store.lookup([block_id(2)]), [True])
        tensors = [bytearray(TENSOR) for _ in pieces]
        store.load(
            Shard(block_id(2), at, tuple(tensors[2 * at : 2 * at + 2])) for at in range(4)
        ).wait()
        self.assertEqual(b"".join(tensors), data)

    def test_lookups(self) -> None:
        store = self.open()
        for number in (1, 2, 4):
            self.stored(store, number)
        ids = [block_id(number) for number in (1, 2, 3, 4, 5)]
        self.assertEqual(store.lookup(ids), [True, True, False, True, False])
        self.assertEqual(store.lookup_prefix(ids), 1)
        self.assertEqual(store.lookup_last(ids), 3)
        self.assertEqual(store.lookup([]), [])
        self.assertEqual(store.lookup_prefix([]), -1)
        self.assertEqual(store.lookup_last([bytearray(block_id(9))]), -1)
        store.remove(ids[:2])
        self.assertEqual(store.lookup(ids), [False, False, False, True, False])

    def test_commit_makes_visible_or_drops(self) -> None:
        store = self.open(commit_policy="explicit")
        self.stored(store, 1)
        self.assertEqual(store.lookup([block_id(1)]), [False])
        store.commit(block_id(1))
        self.assertEqual(store.lookup([block_id(1)]), [True])
        store.dump([Shard(block_id(2), 0, bytes(SHARD))]).wait()
        with self.assertRaises(kvpath.InvalidParamError) as caught:
            store.commit(block_id(2))
        self.assertIn("1", caught.exception.text)
        store.commit(block_id(2), success=False)
        with self.assertRaises(kvpath.NotFoundError):
            store.commit(block_id(2))

    def test_no_shards_is_a_finished_task(self) -> None:
        task = self.open().load([])
        self.assertTrue(task.check())
        task.wait()
        self.assertEqual(task.wait_results(), [])

    def test_cancelling_or_forgetting_what_has_ended(self) -> None:
        store = self.open()
        data, back = self.stored(store, 1), bytearray(BLOCK)
        task = store.load_block(block_id(1), back)
        while not task.check():
            task.cancel()
        task.cancel()
        self.assertIn(task.wait_results()[0], (Status.OK, Status.CANCELLED))
        task.cancel()
        task.forget()  # its result is here already
        self.assertEqual(len(task.wait_results()), BLOCK // SHARD)
        store.load_block(block_id(1), back).forget()
        store.load_block(block_id(1), back).wait()
        self.assertEqual(back, data)

    def test_json_text_and_paths_as_configuration(self) -> None:
        with kvpath.open(json.dumps(self.config())) as store:
            self.assertEqual(store.shape, kvpath.Shape(TENSOR, SHARD, BLOCK))
        with kvpath.open(self.config(storage_backends=[Path(self.root)])) as store:
            store.check_health()


class Errors(StoreCase):
    def test_absent_block(self) -> None:
        task = self.open().load_block(block_id(1), bytearray(BLOCK))
        for _ in range(2):  # the second time it says the same
            with self.assertRaises(LookupError) as caught:
                task.wait()
            error = caught.exception
            assert isinstance(error, kvpath.NotFoundError)
            self.assertNotIsInstance(error, kvpath.CorruptError)
            self.assertEqual(
                (error.status, error.status_name, error.detail),
                (Status.NOT_FOUND, "KVPATH_NOT_FOUND", Status.NOT_FOUND),
            )
            self.assertIn(block_id(1).hex(), error.text)
            self.assertIn("KVPATH_NOT_FOUND (-50005): ", str(error))
        self.assertEqual(task.wait_results(), [Status.NOT_FOUND] * (BLOCK // SHARD))

    def test_file_that_is_not_a_whole_block(self) -> None:
        store = self.open()
        Path(self.root, "data", block_id(1).hex()).write_bytes(b"short")
        with self.assertRaises(kvpath.CorruptError) as caught:
            store.load_block(block_id(1), bytearray(BLOCK)).wait()
        self.assertEqual(caught.exception.status, Status.NOT_FOUND)
        self.assertEqual(caught.exception.detail, Status.CORRUPT)

    def test_first_failing_shard_and_each_status(self) -> None:
        store = self.open()
        self.stored(store, 1)
        shards = [Shard(block_id(number), 0, bytearray(SHARD)) for number in (1, 7, 1)]
        shards[2] = Shard(block_id(1), 1, bytearray(SHARD))
        task = store.load(shards)
        self.assertEqual(task.wait_results(), [Status.OK, Status.NOT_FOUND, Status.OK])
        with self.assertRaises(kvpath.NotFoundError):
            task.wait()

    def test_wrong_configuration(self) -> None:
        with self.assertRaises(ValueError) as caught:
            kvpath.open(self.config(shard_size="8192"))
        self.assertIsInstance(caught.exception, kvpath.InvalidParamError)
        self.assertIn("shard_size", str(caught.exception))

    def test_path_that_fails_its_check(self) -> None:
        with self.assertRaises(kvpath.StoreUnhealthyError) as caught:
            kvpath.open(self.config(storage_backends=[f"{self.root}/absent"]))
        self.assertIn(f"{self.root}/absent", caught.exception.text)

    def test_lookup_only_role(self) -> None:
        with kvpath.open({"storage_backends": self.root, "data_dir_shard_bytes": 0}) as store:
            self.assertIsNone(store.shape)
            self.assertEqual(store.lookup([block_id(1)]), [False])
            with self.assertRaises(kvpath.UnsupportedError):
                store.load_block(block_id(1), bytearray(BLOCK))

    def test_wrong_arguments(self) -> None:
        store = self.open()
        wrong = kvpath.InvalidParamError
        for memory in (bytearray(SHARD - 1), [bytearray(TENSOR)], [bytearray(1)] * 2):
            with self.assertRaises(wrong):
                store.load([Shard(block_id(1), 0, memory)])
        for index in (-1, BLOCK // SHARD, 1 << 32):
            with self.assertRaises(wrong):
                store.load([Shard(block_id(1), index, bytearray(SHARD))])
        with self.assertRaises(wrong):
            store.load([Shard(b"short", 0, bytearray(SHARD))])
        with self.assertRaises(wrong):
            store.dump([Shard(block_id(1), 0, bytes(SHARD))] * 2)
        with self.assertRaises(wrong):
            store.lookup([b"seventeen bytes.."])
        with self.assertRaises(TypeError):
            store.lookup([16])  # type: ignore[list-item]
        with self.assertRaises(wrong):
            store.load([]).wait(-1)
        self.assertEqual(store.stats().tasks, 1)

    def test_unhealthy_lookup_tells_what_it_found(self) -> None:
        store = self.open(store_health={"enabled": False})
        self.stored(store, 1)
        store.backend_set(self.root, kvpath.BackendSetting.OUT)
        with self.assertRaises(kvpath.StoreUnhealthyError) as caught:
            store.lookup([block_id(1)])
        self.assertEqual(caught.exception.partial, [False])
        with self.assertRaises(kvpath.StoreUnhealthyError) as caught:
            store.lookup_last([block_id(1)])
        self.assertEqual(caught.exception.partial, -1)

    def test_after_close(self) -> None:
        store = self.open()
        task = store.load([])
        store.close()
        store.close()
        self.assertTrue(store.closed)
        for call in (
            lambda: store.load_block(block_id(1), bytearray(BLOCK)),
            lambda: store.lookup([block_id(1)]),
            lambda: store.commit(block_id(1)),
            lambda: store.remove([]),
            store.check_health,
            store.health,
            store.health_report,
            store.stats,
            store.stats_report,
            store.metrics,
            store.event_fd,
            store.finished,
            task.check,
            task.wait,
        ):
            with self.assertRaises(kvpath.ClosedError):
                call()

    def test_pickled(self) -> None:
        with self.assertRaises(kvpath.StoreUnhealthyError) as caught:
            kvpath.open(self.config(storage_backends=[os.path.join(self.root, "absent")]))
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertIs(type(again), kvpath.StoreUnhealthyError)
        self.assertEqual((str(again), again.text), (str(caught.exception), caught.exception.text))

    def test_every_status_has_its_exception(self) -> None:
        from kvpath.errors import error_of

        kinds = {type(error_of(it, "text")) for it in Status if it not in (Status.OK, Status.ERROR)}
        self.assertEqual(len(kinds), len(Status) - 2)
        self.assertIs(type(error_of(Status.ERROR, "text")), kvpath.KvpathError)
        self.assertEqual(error_of(-5, "text").status_name, "KVPATH_UNKNOWN")
        self.assertIsInstance(error_of(Status.TIMEOUT, "text"), TimeoutError)
        self.assertEqual(str(error_of(Status.TIMEOUT, "t")), "KVPATH_TIMEOUT (-50010): t")


class Reports(StoreCase):
    def test_counters(self) -> None:
        store = self.open()
        self.stored(store, 1)
        store.load_block(block_id(1), bytearray(BLOCK)).wait()
        stats = store.stats()
        self.assertEqual((stats.tasks, stats.tasks_finished), (2, 2))
        self.assertEqual((stats.dumped_bytes, stats.loaded_bytes), (BLOCK, BLOCK))
        self.assertEqual(stats.committed_blocks, 1)
        self.assertGreater(stats.threads, 0)
        report = store.stats_report()
        self.assertEqual(report["counters"]["loaded_bytes"], BLOCK)
        self.assertEqual(report["config"]["shard_size"], {"value": SHARD, "origin": "config"})
        self.assertIn(f"kvpath_loaded_bytes_total {BLOCK}", store.metrics())

    def test_health_and_operator(self) -> None:
        other = f"{self.root}-ü"
        os.symlink(self.root, other)
        self.addCleanup(os.unlink, other)
        store = self.open(storage_backends=[self.root, other])
        before = store.health()
        self.assertEqual([it.path.rstrip("/") for it in before], [self.root, other])
        self.assertEqual([it.state for it in before], [kvpath.BackendState.AVAILABLE] * 2)
        store.backend_set(Path(other), kvpath.BackendSetting.OUT)
        after = store.health()[1]
        self.assertEqual((after.state, after.transitions), (kvpath.BackendState.OUT, 1))
        self.assertEqual(len(store.health_report()["transitions"]), 1)
        store.check_health()
        store.backend_set(self.root, kvpath.BackendSetting.OUT)
        with self.assertRaises(kvpath.StoreUnhealthyError):
            store.check_health()
        store.backend_set(other, kvpath.BackendSetting.AUTO)
        store.check_health()
        with self.assertRaises(kvpath.InvalidParamError):
            store.backend_set("/nowhere", kvpath.BackendSetting.IN)


if __name__ == "__main__":
    unittest.main()
