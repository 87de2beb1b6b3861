"""Small descriptions of machines and a small profile, in the words of other tools."""

from __future__ import annotations

from typing import Any

_GPU = """<pci busid="0000:0{0}:00.0" class="0x030200" link_speed="32.0 GT/s PCIe" link_width="16">
<gpu dev="{0}" sm="90" rank="{0}"><nvlink target="0000:c7:00.0" count="2" tclass="0x068000"/></gpu></pci>
"""
_NIC = """<pci busid="0000:09:00.0" class="0x020700" link_speed="16.0 GT/s PCIe" link_width="16">
<nic><net name="mlx5_0" dev="0" speed="200000" port="1"/></nic></pci>
"""
TOPOLOGY = (
    '<system version="1">\n<cpu numaid="0" arch="x86_64" vendor="GenuineIntel">\n'
    + _GPU.format(0)
    + _GPU.format(1)
    + _NIC
    + "</cpu>\n</system>\n"
)
_BUS = {"bandwidth": {"choice": "gigabytes_per_second", "gigabytes_per_second": 64}}
_ETHERNET = {
    "bandwidth": {"choice": "gigabits_per_second", "gigabits_per_second": 400},
    "latency": {"choice": "us", "us": 0.5},
}
INFRASTRUCTURE: dict[str, Any] = {
    "devices": [
        {
            "name": "server",
            "components": [
                {"name": "xpu", "choice": "xpu", "count": 2},
                {"name": "nic", "choice": "nic", "count": 2},
            ],
            "links": [{"name": "bus", "physical": _BUS}],
            "edges": [{"ep1": {"component": "xpu"}, "ep2": {"component": "nic[0:2]"}, "link": "bus"}],
        },
        {"name": "switch", "components": [{"name": "port", "choice": "switch"}]},
    ],
    "links": [{"name": "eth", "physical": _ETHERNET}],
    "instances": [
        {"name": "host", "device": "server", "count": 2},
        {"name": "top", "device": "switch", "count": 1},
    ],
    "edges": [
        {
            "ep1": {"instance": "host[0:2]", "component": "nic"},
            "ep2": {"instance": "top[0]", "component": "port[0]"},
            "scheme": "many2many",
            "link": "eth",
        }
    ],
}
_DISPATCH = {"agent_id": {"handle": 5}, "queue_id": {"handle": 1}, "kernel_id": 8}
ROCPROF: dict[str, Any] = {
    "rocprofiler-sdk-tool": [
        {
            "metadata": {"pid": 7},
            "strings": {"buffer_records": [{"kind": "HIP", "operations": ["hipLaunchKernel"]}]},
            "kernel_symbols": [{"kernel_id": 8, "formatted_kernel_name": "gemm"}],
            "buffer_records": {
                "kernel_dispatch": [
                    {
                        "start_timestamp": 2000 * at + 1000,
                        "end_timestamp": 2000 * at + 2500,
                        "correlation_id": {"internal": at},
                        "dispatch_info": _DISPATCH,
                        "stream_id": {"handle": 1},
                    }
                    for at in range(3)
                ],
                "hip_api": [
                    {
                        "start_timestamp": 2000 * at,
                        "end_timestamp": 2000 * at + 100,
                        "correlation_id": {"internal": at},
                        "thread_id": 9,
                        "kind": 0,
                        "operation": 0,
                    }
                    for at in range(3)
                ],
            },
        }
    ]
}
