// SPDX-License-Identifier: Apache-2.0
#include "operator/app/svg_timeline.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "worker/base/text.h"
#include "worker/base/units.h"

namespace weir::operator_app {
namespace {

constexpr double kWidth = 1600, kLeft = 90, kRight = 20;  // pixels
constexpr int kTop = 56, kStageHeight = 22, kLinkHeight = 8, kGap = 4, kReplicaGap = 24;
constexpr double kLetters = 16;  // pixels; a bar of this width has room for its number
constexpr int kTicks = 10;       // approximate number of ticks of the time scale

// The next number up that is 1, 2 or 5 times a power of ten.
double round_step(double seconds) {
  const double power = std::pow(10, std::floor(std::log10(seconds)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= seconds) return factor * power;
  }
  return 10 * power;
}

class Picture {
 public:
  explicit Picture(double seconds) : pixels_((kWidth - kLeft - kRight) / seconds) {}

  void bar(const char* kind, int top, int height, std::chrono::nanoseconds start,
           std::chrono::nanoseconds end, int micro_batch) {
    const double x = place(to_seconds(start));
    const double width = std::max(0.3, place(to_seconds(end)) - x);
    body_ += format(R"(<rect class="%s" x="%.2f" y="%d" width="%.2f" height="%d">)", kind, x, top,
                    width, height);
    body_ += format("<title>%s %d, %.6f s to %.6f s</title></rect>\n", kind, micro_batch,
                    to_seconds(start), to_seconds(end));
    if (width < kLetters || height < kStageHeight) return;
    body_ += format("<text class=\"in\" x=\"%.2f\" y=\"%d\">%d</text>\n", x + width / 2,
                    top + height - 7, micro_batch);
  }
  void idle(int top, double seconds) {  // behind the bars of a stage
    body_ += format(R"(<rect class="idle" x="%.2f" y="%d" width="%.2f" height="%d"></rect>)", kLeft,
                    top, seconds * pixels_, kStageHeight);
  }
  void headline(const std::string& title, bool splits) {
    constexpr double kSquare = 10, kWord = 90;
    body_ += format("<text x=\"%.0f\" y=\"16\">%s</text>\n", kLeft, title.c_str());
    std::vector<const char*> kinds{"forward", "backward", "activation", "gradient", "idle"};
    if (splits) {
      body_ += "<style>.weights{fill:#8a6bb0}</style>\n";
      kinds.insert(kinds.begin() + 2, "weights");
    }
    double x = kWidth - kRight - static_cast<double>(kinds.size()) * kWord;
    for (const char* kind : kinds) {
      body_ += format(R"(<rect class="%s key" x="%.0f" y="7" width="%.0f" height="%.0f"></rect>)",
                      kind, x, kSquare, kSquare);
      body_ += format("<text x=\"%.0f\" y=\"16\">%s</text>\n", x + 1.5 * kSquare, kind);
      x += kWord;
    }
  }
  void label(int top, int height, const std::string& name) {
    body_ += format("<text class=\"name\" x=\"%.0f\" y=\"%d\">%s</text>\n", kLeft - 6,
                    top + height - 2, name.c_str());
  }
  void scale(double seconds, int bottom) {
    const double step = round_step(seconds / kTicks);
    for (int i = 0; i * step <= seconds * (1 + 1e-9); ++i) {
      const double x = place(i * step);
      body_ +=
          format("<line x1=\"%.2f\" y1=\"%d\" x2=\"%.2f\" y2=\"%d\"/>", x, kTop - 4, x, bottom);
      body_ +=
          format("<text class=\"tick\" x=\"%.2f\" y=\"%d\">%g s</text>\n", x, kTop - 10, i * step);
    }
  }
  std::string whole(int height) const {
    return format("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%d\">\n",
                  kWidth, height) +
           R"(<style>text{font:11px sans-serif}.in,.tick{text-anchor:middle}.name{text-anchor:end}
.in{fill:#fff}line{stroke:#ddd}.forward{fill:#3b6fb5}.backward{fill:#2f8f5b}
.activation{fill:#9dbbe3}.gradient{fill:#a3d3b8}.idle{fill:#eee}</style>
)" + body_ +
           "</svg>\n";
  }

 private:
  double place(double seconds) const { return kLeft + seconds * pixels_; }

  const double pixels_;
  std::string body_;
};

bool has_weights(const planner::SimulatedPlan& simulated) {
  return std::ranges::any_of(simulated.replicas, [](const auto& replica) {
    return std::ranges::any_of(replica.timeline.ops, [](const schedule::TimedOp& op) {
      return op.op.kind == schedule::OpKind::kWeights;
    });
  });
}

// The step time, and the share of the stages' time in which they compute nothing.
std::string title_of(const planner::SimulatedPlan& simulated) {
  double busy = 0, whole = 0;
  for (const auto& replica : simulated.replicas) {
    for (const auto time : replica.timeline.busy) {
      busy += to_seconds(time);
      whole += simulated.step_seconds;
    }
  }
  return format("step %.6g s, idle %.1f %%", simulated.step_seconds,
                whole > 0 ? 100 * (1 - busy / whole) : 0.0);
}

}  // namespace

std::string svg_timeline(const planner::SimulatedPlan& simulated) {
  Picture picture(std::max(simulated.step_seconds, 1e-9));
  constexpr int kRow = kStageHeight + 2 * kLinkHeight + 3 * kGap;
  int height = kTop;
  for (const auto& replica : simulated.replicas) {
    height += static_cast<int>(replica.timeline.busy.size()) * kRow + kReplicaGap;
  }
  picture.headline(title_of(simulated), has_weights(simulated));
  picture.scale(simulated.step_seconds, height - kReplicaGap);
  int top = kTop;
  for (std::size_t r = 0; r < simulated.replicas.size(); ++r) {
    const schedule::Timeline& line = simulated.replicas[r].timeline;
    const int stages = static_cast<int>(line.busy.size());
    const auto row = [&](int stage) { return top + stage * kRow; };
    const std::string of = simulated.replicas.size() > 1 ? std::to_string(r) + ", " : "";
    for (int s = 0; s < stages; ++s) {
      picture.idle(row(s), simulated.step_seconds);
      picture.label(row(s), kStageHeight - 4, (of.empty() ? "stage " : of) + std::to_string(s));
    }
    for (const schedule::TimedOp& op : line.ops) {
      constexpr std::array<const char*, schedule::kOpKinds> kKinds{"forward", "backward",
                                                                   "weights"};
      picture.bar(kKinds[static_cast<std::size_t>(op.op.kind)], row(op.stage), kStageHeight,
                  op.start, op.end, op.op.micro_batch);
    }
    for (const schedule::TimedSend& send : line.sends) {
      const int down = row(send.boundary) + kStageHeight + kGap;
      picture.bar(send.forward ? "activation" : "gradient",
                  send.forward ? down : down + kLinkHeight + kGap / 2, kLinkHeight, send.start,
                  send.end, send.micro_batch);
    }
    top = row(stages) + kReplicaGap;
  }
  return picture.whole(height);
}

}  // namespace weir::operator_app
