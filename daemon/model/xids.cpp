#include "daemon/model/xids.h"

#include <algorithm>
#include <functional>
#include <iterator>

namespace gpuperf {
namespace {

using W = XidWeight;

constexpr std::string_view kRestartProgram = "restart the program; if it happens again, debug it";
constexpr std::string_view kResetGpu =
    "stop what runs on the GPU and reset it: nvidia-smi --gpu-reset -i N";
constexpr std::string_view kCallVendor =
    "reset the GPU; if it happens again, run the vendor's diagnostics";

// Source: NVIDIA's XID catalog (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors with the
// Xid Catalog") for what a code means and what to do at once, in our words. Codes that mean nothing
// on GPUs from Volta on are left out.
constexpr XidRow kRows[] = {
    {8, W::kApplication, "the GPU stopped processing a program's work", kRestartProgram},
    {11, W::kApplication, "invalid commands in a program's push buffer", kRestartProgram},
    {13, W::kApplication, "graphics engine exception: usually an illegal memory access in a kernel",
     "restart the program; find the access with compute-sanitizer"},
    {31, W::kApplication, "memory page fault: a kernel read or wrote an address that is not mapped",
     "restart the program; find the access with compute-sanitizer"},
    {32, W::kApplication, "invalid or corrupted push buffer stream", kRestartProgram},
    {38, W::kGpu, "driver firmware error", kCallVendor},
    {43, W::kApplication,
     "the GPU stopped processing: a program hit an error and its channel was "
     "reset",
     "the GPU is healthy; look at the program's own error"},
    {44, W::kApplication, "graphics engine fault during a context switch", kRestartProgram},
    {45, W::kApplication,
     "a program's work was removed: the program ended, or another error occurred before",
     "look for other XIDs at the same time; on its own it only means that a program was killed"},
    {46, W::kGpu, "the GPU stopped processing", kResetGpu},
    {48, W::kGpu, "double-bit memory error, not corrected",
     "drain and reset the GPU, which remaps the row; replace the GPU if this repeats"},
    {61, W::kGpu, "internal micro-controller breakpoint", kResetGpu},
    {62, W::kGpu, "internal micro-controller halt", kResetGpu},
    {63, W::kNotice, "a memory row was marked for remapping, or a page retired",
     "reset the GPU when it is free; the remapping takes effect then"},
    {64, W::kGpu, "remapping of a memory row, or retirement of a page, failed",
     "drain and reset the GPU; replace it if this repeats"},
    {68, W::kApplication, "video decoder exception", kRestartProgram},
    {69, W::kApplication, "graphics engine class error", kRestartProgram},
    {74, W::kGpu, "NVLink error",
     "reset the GPUs on that link; nvidia-smi nvlink -e shows which; if it happens again, reseat "
     "or replace"},
    {79, W::kGpu, "GPU has fallen off the bus",
     "drain the host and power-cycle it; check power, cooling and seating; replace the GPU if it "
     "happens again"},
    {92, W::kGpu, "high rate of single-bit memory errors",
     "run the vendor's memory diagnostics when the GPU is free"},
    {94, W::kApplication, "memory error, contained: only the program that used it is affected",
     "restart the program; reset the GPU when it is free"},
    {95, W::kGpu, "memory error, not contained: every program on the GPU may be affected",
     "drain and reset the GPU at once"},
    {109, W::kGpu, "context switch timeout", kResetGpu},
    {110, W::kGpu, "security fault", "drain the host and power-cycle it"},
    {119, W::kGpu, "the GPU's system processor (GSP) does not respond to the driver",
     "drain and reset the GPU; update the driver if it happens again"},
    {120, W::kGpu, "error of the GPU's system processor (GSP)",
     "drain and reset the GPU; update the driver if it happens again"},
    {121, W::kNotice, "error on the link between CPU and GPU (C2C), corrected",
     "reset the GPU when it is free"},
    {123, W::kGpu, "power management unit communication failed", kResetGpu},
    {136, W::kGpu, "link training failed", kCallVendor},
    {137, W::kApplication,
     "NVLink privilege error: a program used memory of another GPU that is "
     "not there",
     "restart the program; first look for an error on the other GPU"},
    {140, W::kGpu, "memory error, not recovered", "drain and reset the GPU at once"},
    {143, W::kGpu, "the GPU could not be initialised", kCallVendor},
    {144, W::kGpu, "NVLink error (SAW)", kCallVendor},
    {145, W::kGpu, "NVLink error (RLW)", kCallVendor},
    {146, W::kGpu, "NVLink error (TLW)", kCallVendor},
    {147, W::kGpu, "NVLink error (TREX)", kCallVendor},
    {148, W::kGpu, "NVLink error (NVLPW_CTRL)", kCallVendor},
    {149, W::kGpu, "NVLink error (NETIR)", kCallVendor},
    {150, W::kGpu, "NVLink error (MSE)", kCallVendor},
    {151, W::kApplication, "a program's key rotation failed", kRestartProgram},
    {154, W::kNotice, "the driver changed the recovery it recommends for the GPU",
     "nvidia-smi -q shows it under GPU Recovery Action"},
    {155, W::kGpu, "NVLink: firmware asks for a reset", kResetGpu},
    {156, W::kNotice, "a resource was retired", "reset the GPU when it is free"},
    {157, W::kGpu, "a resource could not be retired", kCallVendor},
    {158, W::kGpu, "fatal timeout of the GPU", kResetGpu},
};
static_assert(std::ranges::is_sorted(kRows, std::less<>(), &XidRow::xid));

}  // namespace

std::span<const XidRow> xid_rows() { return kRows; }

XidRow get_xid(uint32_t xid) {
  const auto* row = std::ranges::find(kRows, xid, &XidRow::xid);
  if (row != std::end(kRows)) return *row;
  // Better one look too many than a GPU in trouble called healthy.
  return {xid, XidWeight::kGpu, "an error that gpuperf does not know",
          "look it up in NVIDIA's XID catalog: docs.nvidia.com/deploy/xid-errors"};
}

}  // namespace gpuperf
