// SPDX-License-Identifier: Apache-2.0
// How many connections share the messages of a link. Clouds cap a single flow far below the port,
// so more of them carry more; but where others use the same port, more connections only take their
// share. So the number is doubled only where that carries more and a small message on a spare
// connection does not wait in the queue of the data: then the limit was the flow's own. Pure; one
// per sending link, under its mutex. Source: shares and round trips measured on limited ports,
// worker/transport/README.md "Several connections".
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "worker/transport/busy_meter.h"
#include "worker/transport/link_stats.h"

namespace weir::transport::tcp {

class ConnectionCount {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // open >= 1. Automatic: begins with one, and the last one carries only pings. Otherwise all are
  // used.
  ConnectionCount(int open, bool automatic);

  int in_use() const { return in_use_; }
  // Connections for a message that starts now. Nothing: it has to wait until all messages before it
  // have arrived, because on a trial those with another number would be timed together with it.
  // Call it until it gives a number, once for each message.
  std::optional<int> of_next(std::size_t bytes, Time now);
  bool on_trial() const { return trial_.has_value(); }
  // The oldest message that started and has not arrived is there.
  void arrived(const Arrival& arrival, Time now);
  // A small message came back that was sent while no data were on their way.
  void idle_round_trip(std::chrono::nanoseconds time);
  // The same on the spare connection beside data; `data`: the kernel's time for those at that
  // moment, 0 = unknown.
  void round_trip_beside(std::chrono::nanoseconds time, std::chrono::nanoseconds data);

  const ConnectionProbes& probes() const { return probes_; }
  // Bytes per second with the number before and with the present one; set by a trial that has
  // changed it, until it is taken.
  struct Change {
    int before = 1, now = 1;
    double rate_before = 0, rate_now = 0;
  };
  std::optional<Change> take_change();

 private:
  struct Started {
    int connections = 1;
    int trial = 0;           // number of the trial that the message belongs to; 0 = none
    bool candidate = false;  // it has the candidate's number
  };
  struct Trial {
    int number = 0;
    int candidate = 1;
    int started = 0, arrived = 0;
    std::vector<double> rates[2];  // of the present number and of the candidate
    // Round trips beside data of the present number, seconds: of small messages, and of the data.
    // With the candidate's number the link may fill the port itself.
    std::vector<double> waits, data_waits;
  };

  bool due(Time now) const;
  void begin_trial(int candidate);
  void judge(Time now);
  bool shared() const;

  const bool automatic_;
  const int most_;  // that may be used
  int in_use_;
  std::optional<Trial> trial_;
  int trials_ = 0;
  std::deque<Started> started_;  // not arrived, oldest first
  // Since the last look: seconds in which messages were on their way, their bytes and number.
  double busy_ = 0, bytes_ = 0;
  int timed_ = 0;
  std::optional<Time> since_;
  double share_ = 0, rate_ = 0;    // of the last look
  std::optional<Time> judged_;     // end of the last trial
  double judged_rate_ = 0;         // then
  std::array<double, 32> idle_{};  // newest round trips without data
  std::size_t idles_ = 0;
  ConnectionProbes probes_;
  std::optional<Change> change_;
};

}  // namespace weir::transport::tcp
