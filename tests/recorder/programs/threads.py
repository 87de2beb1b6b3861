"""A thread that multiplies, or does nothing, while the program waits for it or adds."""

import sys
import threading

import torch

left, is_added = torch.ones(8, 8, device="cuda"), threading.Event()
work = {"multiply": lambda: left @ left, "wait": is_added.wait}[sys.argv[1]]
thread = threading.Thread(target=work)
thread.start()
if sys.argv[1] == "multiply":
    thread.join()
left + left
is_added.set()
thread.join()
