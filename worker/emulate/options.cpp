// SPDX-License-Identifier: Apache-2.0
#include "worker/emulate/options.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>

#include "worker/base/numbers.h"
#include "worker/base/units.h"
#include "worker/base/utf8.h"
#include "worker/command_line/numbers.h"

namespace weir::emulate {
namespace {

constexpr double kLongestDelay = 3600;  // seconds

// Reads "1-2", "1-2:fwd" or "1-2:bwd".
Status read_link(Options& o) {
  constexpr int kMost = std::numeric_limits<int>::max();
  const std::string link = o.pace_link.substr(0, o.pace_link.find(':'));
  const std::string way = o.pace_link.substr(std::min(link.size() + 1, o.pace_link.size()));
  const std::size_t dash = std::min(link.find('-'), link.size());
  const auto from = parse_whole(link.substr(0, dash), 0, kMost);
  const auto to = parse_whole(link.substr(std::min(dash + 1, link.size())), 0, kMost);
  if (!from || !to || *to != *from + 1 || !(way.empty() || way == "fwd" || way == "bwd")) {
    return invalid("--pace-link: must be a link such as 1-2, 1-2:fwd or 1-2:bwd, found " +
                   in_quotes(o.pace_link));
  }
  o.pace_boundary = static_cast<int>(*from);
  o.pace_channel = way.empty() ? -1 : way == "bwd" ? 1 : 0;
  return Unit{};
}

Status read_rate(const char* option, const std::string& text, double& bytes_per_second) {
  if (text.empty()) return Unit{};
  const Result<double> rate = parse_rate(text);
  if (!rate) return rate.error().with(option);
  bytes_per_second = *rate;
  return Unit{};
}

}  // namespace

void add_options(Rows& rows, Options& o) {
  rows.group("Emulation, for timing on few cores");
  rows.add("--emulate-profile", o.profile,
           "profile.json with the time that each op takes at least; the arithmetic is still done",
           "WEIR_EMULATE_PROFILE");
  rows.add("--emulate-device", o.device_class, "device class in that profile",
           "WEIR_EMULATE_DEVICE");
  rows.add("--emulate-slowness", o.slowness,
           "file of 'step factor' or '1.5s factor' lines: from then on ops take factor times as "
           "long");
  rows.add("--emulate-idle", o.idle,
           "skip the arithmetic but not the random numbers, for a stage beside one that really "
           "computes");
  rows.add("--emulate-send-window", o.send_window,
           "number of sends under way above which a send blocks compute; unset: sends do not block",
           whole_in(0, 65535));
  const CLI::Validator seconds = number_in(0, kLongestDelay);
  rows.add_time("--emulate-data-delay", o.data_delay, from_seconds,
                "reading a sample takes so much longer, seconds", seconds);
  rows.add_time("--emulate-save-delay", o.save_delay, from_seconds,
                "copying the state for a checkpoint takes so much longer, seconds", seconds);
  rows.add("--pace-rate", o.pace_rate,
           "rate limit of links on which this worker sends, e.g. 40Mbit");
  rows.add("--pace-trace", o.pace_trace, "file of 'seconds share' lines for --pace-rate");
  rows.add(
      "--pace-link", o.pace_link,
      "link to which --pace-rate applies: 1-2, or one direction: 1-2:fwd, 1-2:bwd; unset: all");
  rows.add("--pace-other-rate", o.pace_other_rate,
           "rate limit of links other than --pace-link; the trace does not apply");
}

Status complete(Options& o) {
  WEIR_OK(read_rate("--pace-rate", o.pace_rate, o.pace_bytes_per_second));
  if (o.pace_rate.empty() && !(o.pace_trace.empty() && o.pace_link.empty()))
    return invalid("--pace-rate: required by --pace-trace and --pace-link, not set");
  if (!o.pace_other_rate.empty() && o.pace_link.empty())
    return invalid("--pace-link: required by --pace-other-rate, not set");
  WEIR_OK(read_rate("--pace-other-rate", o.pace_other_rate, o.pace_other_bytes_per_second));
  if (!o.pace_link.empty()) WEIR_OK(read_link(o));
  for (const auto& [set, option] : {std::pair(!o.device_class.empty(), "--emulate-device"),
                                    {!o.slowness.empty(), "--emulate-slowness"},
                                    {o.idle, "--emulate-idle"}}) {
    if (set && o.profile.empty()) {
      return invalid(std::string(option) + ": has no effect without --emulate-profile; set both");
    }
  }
  return Unit{};
}

Result<double> parse_rate(const std::string& text) {
  double number = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string unit(parsed.ptr, text.data() + text.size());
  const std::map<std::string, double> units = {
      {"bit", 1.0 / 8}, {"kbit", 1e3 / 8}, {"Mbit", 1e6 / 8}, {"Gbit", 1e9 / 8},
      {"B", 1},         {"kB", 1e3},       {"MB", 1e6},       {"GB", 1e9}};
  const auto found = units.find(unit);
  // At least a byte per second, because times of slower rates would overflow.
  const bool good = parsed.ec == std::errc() && found != units.end() && number <= 1e15 &&
                    number * found->second >= 1;
  if (!good)
    return invalid("must be a rate such as 40Mbit or 5MB (per second), found " + in_quotes(text));
  return number * found->second;
}

}  // namespace weir::emulate
