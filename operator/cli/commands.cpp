// SPDX-License-Identifier: Apache-2.0
#include "operator/cli/commands.h"

#include <nlohmann/json.hpp>

#include "operator/api/names.h"
#include "operator/cli/figures.h"
#include "operator/cli/job_view.h"
#include "operator/cli/refusal.h"
#include "operator/cli/trace.h"
#include "operator/cli/views.h"
#include "worker/http/server.h"
#include "worker/protocol/trace_request.h"

namespace weir::cli {
namespace {

using nlohmann::json;

constexpr int kRefused = 1;
constexpr int kMostWait = 60;    // seconds, for a trace
constexpr int kFewestSteps = 2;  // of which the first one can be traced

// Events of the core group, which the default role view may read; those of events.k8s.io it may
// not.
const kube::Resource& core_events() {
  static const kube::Resource resource{"", "v1", "events"};
  return resource;
}

// One run: the requests of a command, with the errors that a user reads.
class Run {
 public:
  Run(const Options& options, const Session& session)
      : options_(options), session_(session), ns_(options.namespace_name) {}

  int top() {
    if (!options_.job.empty()) return ranks();
    const std::string where = options_.all_namespaces ? "" : ns_;
    const auto answer = session_.client.list(kube::pipeline_jobs(), where, "");
    if (!answer) {
      return fail(refusal_text(answer.error(), attempt("list", "pipelinejobs", "view", where)));
    }
    const auto jobs = read_jobs(*answer);
    if (!jobs) return fail(jobs.error().message);
    return print(top_lines(*jobs, session_.now, options_.all_namespaces));
  }

  int why() {
    JobView job;
    if (!read(job)) return kRefused;
    // Without events the rest still helps.
    return print(why_lines(job, events_of(job), session_.now));
  }

  int plan() {
    JobView job;
    std::vector<PlanRecord> plans;
    if (!read(job) || !read(job, plans)) return kRefused;
    const auto events = events_of(job);
    print(plan_lines(job, plans, events.value_or(std::vector<JobEvent>{}), session_.now));
    if (!events) session_.out << "events cannot be read: what was measured is not shown\n";
    return 0;
  }

  int logs() {
    JobView job;
    std::vector<PlanRecord> plans;
    if (!read(job) || !read(job, plans)) return kRefused;
    const auto pod = pod_of(job, plan_in_force(job, plans), options_.rank);
    if (!pod) return fail(pod.error().message);
    std::string query = "?container=trainer";
    if (options_.follow) query += "&follow=true";
    if (options_.tail) query += "&tailLines=" + std::to_string(*options_.tail);
    const auto answer = session_.client.lines(kube::pods(), ns_, *pod, "log", query, session_.stop,
                                              [this](std::string_view line) {
                                                session_.out << printable(line) << "\n";
                                                if (options_.follow) session_.out.flush();
                                              });
    if (answer) return 0;
    Attempt of_log = attempt("get", "pods/log", "view", ns_);
    of_log.name = *pod;
    return fail(refusal_text(answer.error(), of_log));
  }

  int checkpoints() {
    JobView job;
    if (!read(job)) return kRefused;
    return print(checkpoint_lines(job, session_.now));
  }

  int trace() {
    JobView job;
    if (!read(job)) return kRefused;
    if (options_.flight) return flight(job);
    if (!runs(job) && job.report.step >= kFewestSteps) {
      return fail(options_.job + ": no steps are made now (" + state_of(job) +
                  "): kubectl weir why " + options_.job + " tells the reason, trace " +
                  options_.job + " --flight the last dump");
    }
    if (options_.replica && *options_.replica >= job.status.data_parallel) {
      return fail("--replica: " + options_.job + " has the replicas 0 to " +
                  std::to_string(job.status.data_parallel - 1) + ", found " +
                  std::to_string(*options_.replica));
    }
    if (job.report.step < kFewestSteps) {
      return fail(options_.job + ": too few steps have been completed yet (kubectl weir why " +
                  options_.job + ")");
    }
    if (!annotate(protocol::trace_request({.id = session_.request_id,
                                           .steps = options_.steps,
                                           .replica = options_.replica.value_or(-1)}))) {
      return kRefused;
    }
    std::string octets;
    const bool there = gather_trace(octets);
    // Nobody shall be asked again; the trace is worth more than an error of this.
    static_cast<void>(
        session_.client.merge_patch(kube::pipeline_jobs(), ns_, options_.job, annotation(nullptr)));
    if (!there) return kRefused;
    const Status written = write_job_trace(octets, options_, session_.out);
    return written ? 0 : fail(written.error().message);
  }

  int suspend(bool wanted) {
    return patch({{"spec", {{"suspend", wanted}}}}, wanted ? suspended_line : resumed_line);
  }

  int scale() {
    return patch({{"spec", {{"parallelism", {{"dataParallel", options_.replicas}}}}}}, scaled_line);
  }

 private:
  Attempt attempt(const char* verb, const char* resource, const char* role,
                  const std::string& where) const {
    return {name(options_.command), verb, resource, role, where, ""};
  }
  Attempt of_job(const char* verb, const char* role) const {
    Attempt out = attempt(verb, "pipelinejobs", role, ns_);
    out.name = options_.job;
    return out;
  }

  int fail(const std::string& why) const {
    session_.err << "kubectl weir: " << printable(why) << "\n";
    return kRefused;
  }
  int print(const Lines& lines) const {
    for (const std::string& line : lines) session_.out << printable(line) << "\n";
    return 0;
  }

  int flight(const JobView& job) const {
    const auto answer =
        session_.client.get(kube::config_maps(), ns_, api::flight_config_map(options_.job));
    if (!answer && answer.error().http_status != 404) {
      return fail(refusal_text(answer.error(), attempt("get", "configmaps", "view", ns_)));
    }
    const auto dump = answer ? read_trace_part(*answer) : Result<TracePart>(invalid(""));
    if (!dump || dump->owner_uid != job.uid) {
      return fail(options_.job +
                  ": no dump of its flight recorders is kept: one is made when a step is slow, "
                  "none comes any more, or a rank is lost");
    }
    std::string text = options_.job + ": ";
    if (dump->time) text += age_text(session_.now - *dump->time) + " ago: ";
    for (const std::string& line : paragraph("", text + dump->why)) print({line});
    const Status written = write_job_trace(dump->octets, options_, session_.out);
    return written ? 0 : fail(written.error().message);
  }
  static std::string annotation(const json& value) {
    return json{{"metadata", {{"annotations", {{api::kTrace, value}}}}}}.dump();
  }
  bool annotate(const std::string& request) const {
    const auto answer =
        session_.client.merge_patch(kube::pipeline_jobs(), ns_, options_.job, annotation(request));
    if (answer) return true;
    Attempt wish = of_job("patch", "edit");
    wish.instead = "read the last dump: kubectl weir trace " + options_.job + " --flight";
    return fail(refusal_text(answer.error(), wish)) == 0;
  }
  // Waits for the ConfigMaps of this request. False after a line on `err`.
  bool gather_trace(std::string& octets) const {
    int have = 0, parts = 1;
    for (int waited = 0; have < parts;) {
      const std::string name = api::trace_config_map(options_.job, have);
      const auto answer = session_.client.get(kube::config_maps(), ns_, name);
      if (!answer && answer.error().http_status != 404) {
        return fail(refusal_text(answer.error(), attempt("get", "configmaps", "edit", ns_))) == 0;
      }
      const auto part = answer ? read_trace_part(*answer) : Result<TracePart>(invalid(""));
      if (part && part->id == session_.request_id && part->part == have + 1) {
        octets += part->octets;
        parts = part->parts;
        ++have;
      } else if (waited++ == kMostWait) {
        return fail(no_answer()) == 0;
      } else {
        session_.sleep(std::chrono::seconds(1));
      }
    }
    return true;
  }
  std::string no_answer() const {
    std::string text = options_.job + ": no trace in " + std::to_string(kMostWait) + " s";
    const auto answer = session_.client.get(kube::pipeline_jobs(), ns_, options_.job);
    const auto job = answer ? read_job(*answer) : Result<JobView>(invalid(""));
    if (!job || !job->report.last_report_time) return text;
    text += ": the last report came " +
            data_age(*job, session_.now + std::chrono::seconds(kMostWait)) + " ago";
    const api::Condition* ready = condition(*job, "Ready");
    if (runs(*job) || ready == nullptr) return text;
    return text + " (" + ready->reason + (ready->message.empty() ? "" : ": " + ready->message) +
           ")";
  }

  int ranks() {
    JobView job;
    std::vector<PlanRecord> plans;
    if (!read(job) || !read(job, plans)) return kRefused;
    return print(rank_lines(job, plan_in_force(job, plans), session_.now));
  }

  bool read(JobView& job) const {
    const auto answer = session_.client.get(kube::pipeline_jobs(), ns_, options_.job);
    if (!answer) return fail(refusal_text(answer.error(), of_job("get", "view"))) == 0;
    auto read = read_job(*answer);
    if (!read) return fail(read.error().message) == 0;
    job = *std::move(read);
    return true;
  }
  bool read(const JobView& job, std::vector<PlanRecord>& plans) const {
    const std::string query =
        "?labelSelector=" + http::percent_encoded(std::string(api::kJobName) + "=" + options_.job);
    const auto answer = session_.client.list(kube::config_maps(), ns_, query);
    if (!answer) {
      return fail(refusal_text(answer.error(), attempt("list", "configmaps", "view", ns_))) == 0;
    }
    auto read = read_plans(*answer, job.uid);
    if (!read) return fail(read.error().message) == 0;
    plans = *std::move(read);
    return true;
  }
  // Nothing: they cannot be read.
  std::optional<std::vector<JobEvent>> events_of(const JobView& job) const {
    const std::string query = "?fieldSelector=" + http::percent_encoded(
                                                      "involvedObject.kind=PipelineJob,"
                                                      "involvedObject.name=" +
                                                      options_.job);
    const auto answer = session_.client.list(core_events(), ns_, query);
    if (!answer) return std::nullopt;
    auto events = read_events(*answer, job.uid);
    return events ? std::optional(*std::move(events)) : std::nullopt;
  }

  int patch(const json& body, std::string (*told)(const JobView&)) const {
    const auto answer =
        session_.client.merge_patch(kube::pipeline_jobs(), ns_, options_.job, body.dump());
    if (!answer) return fail(refusal_text(answer.error(), of_job("patch", "edit")));
    const auto job = read_job(*answer);
    if (!job) return fail(job.error().message);
    return print({told(*job)});
  }

  const Options& options_;
  const Session& session_;
  const std::string ns_;
};

}  // namespace

int run_command(const Options& options, const Session& session) {
  Run run(options, session);
  switch (options.command) {
    case Command::kTop:
      return run.top();
    case Command::kWhy:
      return run.why();
    case Command::kPlan:
      return run.plan();
    case Command::kLogs:
      return run.logs();
    case Command::kCheckpoints:
      return run.checkpoints();
    case Command::kSuspend:
      return run.suspend(true);
    case Command::kResume:
      return run.suspend(false);
    case Command::kScale:
      return run.scale();
    case Command::kTrace:
      return run.trace();
    case Command::kVersion:
      return 0;  // main prints it
  }
  return kRefused;
}

}  // namespace weir::cli
