// SPDX-License-Identifier: Apache-2.0
// Virtual time: what is to happen when. Equal times keep the order in which they were asked for.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <utility>

namespace weir::sim {

class Agenda {
 public:
  double now() const { return now_; }
  void at(double time, std::function<void()> what) {
    events_.emplace(std::pair{std::max(time, now_), sequence_++}, std::move(what));
  }
  void after(double seconds, std::function<void()> what) { at(now_ + seconds, std::move(what)); }
  void every(double seconds, std::function<void()> what) {
    after(seconds, [this, seconds, what = std::move(what)] {
      what();
      every(seconds, what);
    });
  }
  void run_until(double time) {
    while (!events_.empty() && events_.begin()->first.first <= time) {
      auto event = events_.extract(events_.begin());
      now_ = event.key().first;
      event.mapped()();
    }
    now_ = time;
  }

 private:
  double now_ = 0;
  std::uint64_t sequence_ = 0;
  std::map<std::pair<double, std::uint64_t>, std::function<void()>> events_;
};

}  // namespace weir::sim
