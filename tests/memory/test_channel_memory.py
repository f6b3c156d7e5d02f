"""What a channel has sent is held by nobody on its account."""

from __future__ import annotations

import gc
import socket
import threading
import weakref

import numpy as np
import pytest

from layby.memory.channel import Channel
from layby.memory.segment import Segment


@pytest.mark.parametrize("fails", [False, True])
def test_a_message_is_free_without_the_garbage_collector_once_it_is_sent(*, fails: bool) -> None:
    ours, theirs = socket.socketpair()
    channel, other = Channel(ours), Channel(theirs)
    gc.collect()
    gc.disable()
    try:
        segment = Segment.create(4096)
        held = weakref.ref(segment)
        message = [segment.view(0, np.dtype(np.int64), 8), threading.Lock() if fails else None]
        del segment
        if fails:
            with pytest.raises(TypeError):
                channel.send(message)
        else:
            channel.send(message)
        del message
        assert held() is None
    finally:
        gc.enable()
        channel.close()
        other.close()
