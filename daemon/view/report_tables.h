#pragma once

// The parts of a report that are tables and bars: HTML, empty where the capture has nothing to
// show.

#include <string>

#include "daemon/model/capture.h"
#include "daemon/view/summary.h"

namespace gpuperf {

std::string make_report_cards(const Capture& capture, const CaptureSummary& summary);
std::string make_report_facts(const Capture& capture, const CaptureSummary& summary);
std::string make_report_why(const Capture& capture);
std::string make_report_idle(const Capture& capture, const CaptureSummary& summary);
std::string make_report_kernels(const Capture& capture, const CaptureSummary& summary);
std::string make_report_operations(const Capture& capture, const CaptureSummary& summary);
std::string make_report_launches(const Capture& capture, const CaptureSummary& summary);
std::string make_report_copies(const CaptureSummary& summary);

}  // namespace gpuperf
