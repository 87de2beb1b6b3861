"""A thread multiplies while the program waits for it; then the program adds."""

import threading

import torch

left = torch.ones(8, 8, device="cuda")
thread = threading.Thread(target=lambda: left @ left)
thread.start()
thread.join()
left + left
