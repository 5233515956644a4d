// SPDX-License-Identifier: Apache-2.0
#include "operator/kube/kube_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temp_dir.h"
#include "worker/base/digest.h"

namespace weir::kube {
namespace kube_config_test {

using ::testing::HasSubstr;

std::string no_environment(const std::string&) {
  return "";
}

std::string config_with(const std::string& cluster, const std::string& user) {
  return "apiVersion: v1\nkind: Config\ncurrent-context: c\n"
         "contexts: [{name: c, context: {cluster: k, user: u, namespace: team}}]\n"
         "clusters: [{name: other, cluster: {server: 'https://wrong'}}, {name: k, cluster: " +
         cluster + "}]\nusers: [{name: u, user: " + user + "}]\n";
}

TEST(KubeConfig, ReadsServerTokenAndFilesBesideIt) {
  const test::TempDir dir;
  const std::string file = dir.file(
      "config", config_with("{server: 'https://h:6443', certificate-authority: ca.crt}",
                            "{token: abc, client-certificate: /abs/c.crt, client-key: k.key}"));

  const auto credentials = load_credentials(file, no_environment);

  ASSERT_TRUE(credentials.ok()) << credentials.error().message;
  EXPECT_EQ(credentials->server, "https://h:6443");
  EXPECT_EQ(credentials->ca_file, (dir.path() / "ca.crt").string());
  EXPECT_EQ(credentials->cert_file, "/abs/c.crt");
  EXPECT_EQ(credentials->key_file, (dir.path() / "k.key").string());
  EXPECT_EQ(credentials->token, "abc");
  EXPECT_EQ(credentials->namespace_name, "team");
}

TEST(KubeConfig, PrefersDataOverFiles) {
  const test::TempDir dir;
  const std::string file =
      dir.file("config", config_with("{server: 'https://h', certificate-authority: ca.crt, "
                                     "certificate-authority-data: " +
                                         to_base64("PEM") + "}",
                                     "{tokenFile: t}"));

  const auto credentials = load_credentials(file, no_environment);

  ASSERT_TRUE(credentials.ok());
  EXPECT_EQ(credentials->ca_file, "");
  EXPECT_EQ(credentials->tls.ca_pem, "PEM");
  EXPECT_EQ(credentials->token_file, (dir.path() / "t").string());
}

TEST(KubeConfig, NamesFileAndFieldOfWhatIsWrong) {
  const struct {
    std::string text, message;
  } cases[] = {
      {"a: [", "config"},
      {"- 1", "no kubeconfig"},
      {"kind: Config", "current-context: missing"},
      {"current-context: x\ncontexts: []", "contexts: no 'x'"},
      {config_with("{server: 'https://h'}", "{exec: {command: aws}}"), "users[u]: exec"},
      {config_with("{server: 'h'}", "{}"), "clusters[k]: server: 'h' is no http URL"},
      {config_with("{server: 'https://h', tls-server-name: x}", "{}"), "tls-server-name"},
      {config_with("{server: 'https://h', proxy-url: 'http://p:1'}", "{}"),
       "proxy-url: not supported"},
      {config_with("{server: 'https://h', certificate-authority-data: '%'}", "{}"),
       "certificate-authority-data: not base64"},
  };
  for (const auto& c : cases) {
    const test::TempDir dir;
    const auto credentials = load_credentials(dir.file("config", c.text), no_environment);
    ASSERT_FALSE(credentials.ok()) << c.text;
    EXPECT_THAT(credentials.error().message, HasSubstr(c.message));
  }
  EXPECT_THAT(load_credentials("/nonexistent/config", no_environment).error().message,
              HasSubstr("/nonexistent/config: cannot be read: No such file or directory"));
}

TEST(KubeConfig, TakesTheFirstOccurrenceOfAListOfFiles) {
  const test::TempDir dir;
  const std::string first =
      dir.file("first",
               "current-context: c\ncontexts: [{name: c, context: {cluster: k, user: u}}]\n"
               "clusters: [{name: k, cluster: {server: 'https://first'}}]\n");
  const std::string second =
      dir.file("second", config_with("{server: 'https://second'}", "{token: t2}"));

  const auto credentials = load_credentials("", [&](const std::string& name) {
    return name == "KUBECONFIG" ? first + ":/nonexistent:" + second : "";
  });

  ASSERT_TRUE(credentials.ok()) << credentials.error().message;
  EXPECT_EQ(credentials->server, "https://first");
  EXPECT_EQ(credentials->token, "t2");
}

TEST(KubeConfig, PutsBracketsAroundAnIpv6ServiceInTheCluster) {
  const auto credentials = load_credentials("", [](const std::string& name) -> std::string {
    if (name == "KUBERNETES_SERVICE_HOST") return "fd00::1";
    return name == "KUBERNETES_SERVICE_PORT" ? "6443" : "";
  });

  ASSERT_TRUE(credentials.ok());
  EXPECT_EQ(credentials->server, "https://[fd00::1]:6443");
  EXPECT_THAT(credentials->token_file, HasSubstr("serviceaccount/token"));
}

TEST(KubeConfig, SaysWhatToDoWithoutAny) {
  const auto credentials = load_credentials("", no_environment);

  ASSERT_FALSE(credentials.ok());
  EXPECT_THAT(credentials.error().message, HasSubstr("--kubeconfig"));
}

}  // namespace kube_config_test
}  // namespace weir::kube
