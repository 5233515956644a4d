// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/exec_credential.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include "worker/base/utf8.h"

extern char** environ;  // NOLINT: POSIX declares it nowhere

namespace weir::kube {
namespace {

using nlohmann::json;
using std::chrono::steady_clock;

constexpr std::size_t kMaxOutput = 1U << 20;  // bytes; a credential has some kilobytes
constexpr std::size_t kLongestHint = 200;     // bytes of a plugin's own words in an error

std::string member_text(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

// The program with its arguments up to the first option, e.g. "aws eks get-token": options may hold
// secrets.
std::string shown(const ExecPlugin& plugin) {
  std::string text = plugin.command;
  for (const std::string& arg : plugin.args) {
    if (arg.starts_with('-')) break;
    text += " " + arg;
  }
  return one_line(text, kLongestHint);
}

std::string last_line(std::string_view text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  const auto begin = text.rfind('\n');
  return one_line(begin == text.npos ? text : text.substr(begin + 1), kLongestHint);
}

class Pipe {
 public:
  Pipe() { open_ = ::pipe2(ends_.data(), O_CLOEXEC) == 0; }
  ~Pipe() {
    close_end(0);
    close_end(1);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;
  bool open() const { return open_; }
  int end(std::size_t which) const { return ends_[which]; }
  void close_end(std::size_t which) {
    if (open_ && ends_[which] >= 0) ::close(ends_[which]);
    ends_[which] = -1;
  }

 private:
  std::array<int, 2> ends_{-1, -1};
  bool open_ = false;
};

std::vector<std::string> environment_of(const ExecPlugin& plugin) {
  std::vector<std::string> all;
  const auto set_by_plugin = [&](std::string_view entry) {
    const std::string_view name = entry.substr(0, entry.find('='));
    return name == "KUBERNETES_EXEC_INFO" ||
           std::ranges::any_of(plugin.env, [&](const auto& one) { return one.first == name; });
  };
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (!set_by_plugin(*entry)) all.emplace_back(*entry);
  }
  for (const auto& [name, value] : plugin.env) all.emplace_back(name).append("=").append(value);
  all.push_back("KUBERNETES_EXEC_INFO=" + exec_info(plugin));
  return all;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> out;
  out.reserve(texts.size() + 1);
  for (std::string& text : texts) out.push_back(text.data());
  out.push_back(nullptr);
  return out;
}

// Starts the program in a process group of its own. Returns its id, or the errno as a negative one.
pid_t start(const ExecPlugin& plugin, const Pipe& out, const Pipe& err) {
  std::vector<std::string> words{plugin.command};
  words.insert(words.end(), plugin.args.begin(), plugin.args.end());
  std::vector<std::string> environment = environment_of(plugin);
  posix_spawn_file_actions_t files;
  posix_spawnattr_t how;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&how);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, out.end(1), STDOUT_FILENO);
  posix_spawn_file_actions_adddup2(&files, err.end(1), STDERR_FILENO);
  posix_spawnattr_setflags(&how, POSIX_SPAWN_SETPGROUP);
  posix_spawnattr_setpgroup(&how, 0);
  pid_t pid = 0;
  const int failed = posix_spawnp(&pid, plugin.command.c_str(), &files, &how,
                                  pointers(words).data(), pointers(environment).data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&how);
  return failed == 0 ? pid : -failed;
}

// Appends what can be read. False at the end, or if there is too much.
bool read_some(int from, std::string& into) {
  std::array<char, 4096> chunk{};
  const ssize_t count = ::read(from, chunk.data(), chunk.size());
  if (count < 0) return errno == EINTR || errno == EAGAIN;
  into.append(chunk.data(), static_cast<std::size_t>(count));
  return count > 0 && into.size() <= kMaxOutput;
}

// Reads both ends until they are closed. False: the time has passed.
bool read_both(Pipe& out, Pipe& err, steady_clock::time_point until, std::string& output,
               std::string& errors) {
  std::array<pollfd, 2> wait{pollfd{out.end(0), POLLIN, 0}, pollfd{err.end(0), POLLIN, 0}};
  while (wait[0].fd >= 0 || wait[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(until - steady_clock::now()).count();
    if (left <= 0) return false;
    if (::poll(wait.data(), wait.size(), static_cast<int>(left)) < 0 && errno != EINTR) return true;
    if (wait[0].revents != 0 && !read_some(out.end(0), output)) wait[0].fd = -1;
    if (wait[1].revents != 0 && !read_some(err.end(0), errors)) wait[1].fd = -1;
    wait[0].revents = wait[1].revents = 0;
  }
  return true;
}

// Waits for the end of the process. Nothing: the time has passed.
std::optional<int> wait_for(pid_t pid, steady_clock::time_point until) {
  for (int status = 0;;) {
    const pid_t ended = ::waitpid(pid, &status, WNOHANG);
    if (ended == pid) return status;
    if (ended < 0 && errno != EINTR) return 0;
    if (steady_clock::now() >= until) return std::nullopt;
    ::poll(nullptr, 0, 10);
  }
}

}  // namespace

std::string exec_info(const ExecPlugin& plugin) {
  json spec{{"interactive", false}};
  if (!plugin.cluster_json.empty()) {
    spec["cluster"] = json::parse(plugin.cluster_json, nullptr, false);
  }
  return json{{"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", spec}}.dump(
      -1, ' ', false, json::error_handler_t::replace);
}

Result<ExecCredential> decode_exec_credential(const std::string& output,
                                              const std::string& api_version) {
  const json answer = json::parse(output, nullptr, false);
  if (!answer.is_object() || member_text(answer, "kind") != "ExecCredential") {
    return invalid("printed no ExecCredential");
  }
  if (const std::string version = member_text(answer, "apiVersion"); version != api_version) {
    return invalid("printed apiVersion " + in_quotes(version) + ", the kubeconfig says " +
                   in_quotes(api_version));
  }
  const auto status = answer.find("status");
  if (status == answer.end() || !status->is_object()) {
    return invalid("printed an ExecCredential without status");
  }
  ExecCredential out{member_text(*status, "token"), member_text(*status, "clientCertificateData"),
                     member_text(*status, "clientKeyData")};
  if (out.cert_pem.empty() != out.key_pem.empty()) {
    return invalid("printed a certificate without its key, or a key without its certificate");
  }
  if (out.token.empty() && out.cert_pem.empty()) {
    return invalid("printed neither a token nor a client certificate");
  }
  return out;
}

Result<ExecCredential> run_exec_plugin(const ExecPlugin& plugin, std::chrono::milliseconds limit) {
  const std::string name = shown(plugin);
  Pipe out, err;
  if (!out.open() || !err.open()) return Error{Code::kInternal, name + ": no pipe"};
  const auto until = steady_clock::now() + limit;
  const pid_t pid = start(plugin, out, err);
  if (pid < 0) {
    std::string text =
        name + " cannot be run: " + std::error_code(-pid, std::generic_category()).message();
    if (!plugin.install_hint.empty()) text += " (" + one_line(plugin.install_hint, 300) + ")";
    return invalid(text);
  }
  out.close_end(1);
  err.close_end(1);
  std::string output, errors;
  read_both(out, err, until, output, errors);
  const auto status = wait_for(pid, until);
  if (!status) {
    ::kill(-pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
    return Error{Code::kTimeout,
                 name + " has not ended after " + std::to_string(limit.count() / 1000) + " s"};
  }
  if (!WIFEXITED(*status) || WEXITSTATUS(*status) != 0) {
    const std::string how = WIFEXITED(*status)
                                ? "ended with " + std::to_string(WEXITSTATUS(*status))
                                : "was ended by signal " + std::to_string(WTERMSIG(*status));
    const std::string why = last_line(errors);
    return invalid(name + " " + how + (why.empty() ? "" : ": " + why));
  }
  auto credential = decode_exec_credential(output, plugin.api_version);
  if (!credential) return invalid(name + " " + credential.error().message);
  return credential;
}

}  // namespace weir::kube
