// SPDX-License-Identifier: Apache-2.0
// Exec plugins, played by shell scripts.
#include "operator/kube/exec_credential.h"

#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "operator/kube/kube_config.h"
#include "tests/support/temp_dir.h"

namespace weir::kube {
namespace exec_credential_test {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

constexpr auto kV1 = "client.authentication.k8s.io/v1";
constexpr auto kBeta = "client.authentication.k8s.io/v1beta1";

ExecPlugin script(const std::string& text) {
  ExecPlugin plugin;
  plugin.api_version = kV1;
  plugin.command = "sh";
  plugin.args = {"-c", text};
  return plugin;
}

std::string answer(const std::string& status, const std::string& version = kV1) {
  return R"({"kind":"ExecCredential","apiVersion":")" + version + R"(","status":)" + status + "}";
}

TEST(ExecCredential, ReadsTokensAndCertificatesOfBothVersions) {
  EXPECT_EQ(decode_exec_credential(answer(R"({"token":"t"})"), kV1)->token, "t");
  EXPECT_EQ(decode_exec_credential(answer(R"({"token":"t"})", kBeta), kBeta)->token, "t");
  const auto both =
      decode_exec_credential(answer(R"({"clientCertificateData":"C","clientKeyData":"K"})"), kV1);
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->cert_pem, "C");
  EXPECT_EQ(both->key_pem, "K");
}

TEST(ExecCredential, SaysWhatIsWrongWithAnAnswer) {
  const struct {
    std::string output, message;
  } cases[] = {
      {"", "no ExecCredential"},
      {"Please sign in", "no ExecCredential"},
      {R"({"kind":"Status"})", "no ExecCredential"},
      {answer(R"({"token":"t"})", kBeta), "v1beta1', the kubeconfig says"},
      {answer("null"), "without status"},
      {answer("{}"), "neither a token nor a client certificate"},
      {answer(R"({"clientCertificateData":"C"})"), "without its key"},
  };
  for (const auto& c : cases) {
    const auto read = decode_exec_credential(c.output, kV1);
    ASSERT_FALSE(read.ok()) << c.output;
    EXPECT_THAT(read.error().message, HasSubstr(c.message));
  }
}

TEST(ExecCredential, GivesThePluginItsEnvironmentAndTheRequest) {
  ExecPlugin plugin = script(
      "test \"$PROFILE\" = 'a b' && printf '%s' \"$KUBERNETES_EXEC_INFO\" >&2 && "
      "printf '%s' '" +
      answer(R"({"token":"secret"})") + "'");
  plugin.env = {{"PROFILE", "a b"}};
  plugin.cluster_json = R"({"server":"https://h"})";

  const auto credential = run_exec_plugin(plugin);

  ASSERT_TRUE(credential.ok()) << credential.error().message;
  EXPECT_EQ(credential->token, "secret");
  const auto info = nlohmann::json::parse(exec_info(plugin));
  EXPECT_EQ(info["apiVersion"], kV1);
  EXPECT_EQ(info["spec"]["interactive"], false);
  EXPECT_EQ(info["spec"]["cluster"]["server"], "https://h");
}

TEST(ExecCredential, TellsHowAPluginEndedWithItsLastLine) {
  const auto failed =
      run_exec_plugin(script("echo first >&2; echo 'token has expired' >&2; exit 255"));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().message, "sh ended with 255: token has expired");
  EXPECT_EQ(run_exec_plugin(script("kill -9 $$")).error().message, "sh was ended by signal 9");
  EXPECT_THAT(run_exec_plugin(script("echo hello")).error().message,
              HasSubstr("sh printed no ExecCredential"));
}

TEST(ExecCredential, NamesAProgramThatIsNotInstalled) {
  ExecPlugin plugin = script("");
  plugin.command = "weir-no-such-plugin";
  plugin.args = {"eks", "get-token", "--secret=x"};
  plugin.install_hint = "Install it\nfrom there";

  EXPECT_EQ(run_exec_plugin(plugin).error().message,
            "weir-no-such-plugin eks get-token cannot be run: No such file or directory "
            "(Install it from there)");
}

TEST(ExecCredential, KillsAPluginThatDoesNotEndWithItsChildren) {
  const auto late = run_exec_plugin(script("sleep 100 & sleep 100"), milliseconds(200));

  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, Code::kTimeout);
}

TEST(ExecCredential, IsAskedForByTheUserOfTheKubeconfig) {
  const test::TempDir dir;
  const std::string config = dir.file(
      "config",
      "current-context: a\n"
      "contexts: [{name: a, context: {cluster: k, user: token}}, {name: b, context: {cluster: k, "
      "user: plugin, namespace: team}}]\n"
      "clusters: [{name: k, cluster: {server: 'https://h:6443', tls-server-name: kubernetes}}]\n"
      "users: [{name: token, user: {token: t}}, {name: plugin, user: {exec: {apiVersion: "
      "client.authentication.k8s.io/v1, command: bin/get-token, args: [-x, '7'], env: [{name: A, "
      "value: b}], provideClusterInfo: true}}}]\n");
  std::optional<ExecPlugin> asked;
  ConfigSource source;
  source.path = config;
  source.takes_tls_name = true;
  source.run_plugin = [&](const ExecPlugin& plugin) -> Result<ExecCredential> {
    asked = plugin;
    return ExecCredential{"from-plugin", "", ""};
  };
  const auto no_environment = [](const std::string&) { return std::string(); };

  const auto current = load_credentials(source, no_environment);
  ASSERT_TRUE(current.ok()) << current.error().message;
  EXPECT_EQ(current->token, "t");
  EXPECT_EQ(current->tls_name, "kubernetes");
  EXPECT_FALSE(asked);

  source.context = "b";
  const auto other = load_credentials(source, no_environment);
  ASSERT_TRUE(other.ok()) << other.error().message;
  EXPECT_EQ(other->token, "from-plugin");
  EXPECT_EQ(other->namespace_name, "team");
  ASSERT_TRUE(asked);
  EXPECT_EQ(asked->command, (dir.path() / "bin/get-token").string());
  EXPECT_THAT(asked->args, ::testing::ElementsAre("-x", "7"));
  EXPECT_THAT(asked->cluster_json, HasSubstr("\"tls-server-name\":\"kubernetes\""));

  source.context = "c";
  EXPECT_THAT(load_credentials(source, no_environment).error().message,
              HasSubstr("contexts: no 'c'"));
}

}  // namespace exec_credential_test
}  // namespace weir::kube
