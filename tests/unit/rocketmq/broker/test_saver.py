"""What is saved every few seconds, and what happens when it cannot be."""

from __future__ import annotations

from pathlib import Path

from support.brokers import benched
from tallystick.errors import StorageError
from tallystick.rocketmq.broker.config_files import CONSUMER_OFFSETS, ConfigFiles


async def test_offsets_are_there_after_a_restart(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        first = await bench.broker(bench.settings(broker_id=0))
        first.parts.offsets.commit("T", "G", 0, 0)
        await first.stop()
        assert (await bench.broker()).parts.offsets.get("T", "G", 0) == 0


async def test_what_could_not_be_saved_is_tried_again(tmp_path: Path) -> None:
    async with benched(tmp_path) as bench:
        broker = await bench.broker()
        saver, files = broker._saver, broker._saver._files
        broker.parts.offsets.commit("T", "G", 0, 7)
        whole, files.save = ConfigFiles.save, _full  # type: ignore[method-assign]
        await saver.save()
        await saver.save()
        assert [event.kind for event in bench.told if event.kind == "table not saved"] == ["table not saved"]
        del files.save  # type: ignore[method-assign]
        assert files.save.__func__ is whole  # type: ignore[attr-defined]
        await saver.save()
        assert '"T@G":{' in (tmp_path / "b0" / "config" / CONSUMER_OFFSETS).read_text()
        assert not broker.parts.offsets.dirty


def _full(name: str, text: bytes | str) -> None:
    raise StorageError("no room")
