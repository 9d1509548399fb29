"""The folder of a broker's messages: it is one broker's at a time, and its store has a part of the open files."""

from __future__ import annotations

import os
from dataclasses import replace

from tallystick.rocketmq.broker.ports import STORE_SHARE
from tallystick.rocketmq.broker.settings import BrokerSettings
from tallystick.rocketmq.store.checkpoint import LOCK, LOCK_CONTENT
from tallystick.rocketmq.store.store import MessageStore
from tallystick.runtime.disk import Lock
from tallystick.runtime.folders import make_folder
from tallystick.runtime.outside import Outside


def lock_folder(settings: BrokerSettings, outside: Outside) -> Lock:
    """Make the folder where there is none, and lock it. Raises UsageError while another process has it."""
    make_folder(outside.disk, settings.store_dir)
    return outside.disk.lock_file(os.path.join(settings.store_dir, LOCK), LOCK_CONTENT)


def open_store(settings: BrokerSettings, outside: Outside, *, port: int, is_slave: bool) -> MessageStore:
    """Open the store of the broker at ``port``; it takes its time. Raises StorageError."""
    store_settings = settings.store_settings(port)
    open_files = min(store_settings.max_open_files, outside.open_files // STORE_SHARE)
    return MessageStore.open(
        outside.disk,
        settings.store_dir,
        replace(store_settings, max_open_files=open_files),
        outside.clock,
        outside.events,
        slave=is_slave,
    )
