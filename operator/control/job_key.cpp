// SPDX-License-Identifier: Apache-2.0
#include "operator/control/job_key.h"

#include <nlohmann/json.hpp>

#include "worker/base/digest.h"
#include "worker/base/time_text.h"

namespace weir::control_server {
namespace {

using nlohmann::json;

constexpr std::size_t kSeedBytes = 32;
constexpr int kKeyAttempts = 3;  // read and create; again if another replica creates or deletes it

Error no_secret(const KeysSecret& secret, const std::string& why = "") {
  return {Code::kInvalid, "Secret " + secret.name + why};
}

Result<std::string> entry(const KeysSecret& secret, const json& data, const char* name) {
  const auto found = data.find(name);
  const auto value = found != data.end() && found->is_string()
                         ? from_base64(found->get<std::string>())
                         : std::nullopt;
  if (!value || value->empty()) {
    return no_secret(secret, std::string(": data[\"") + name + "\"] is missing or not base64");
  }
  return *value;
}

Result<OwnAuthority> decode_own(const KeysSecret& secret, const json& data) {
  OwnAuthority own;
  if (data.contains("own.crt")) {
    WEIR_TRY(own.pem, entry(secret, data, "own.crt"));
  }
  if (data.contains("own-retired.crt")) {
    WEIR_TRY(own.retired_pem, entry(secret, data, "own-retired.crt"));
  }
  if (own.pem.empty() && own.retired_pem.empty()) return own;
  WEIR_TRY(const std::string since, entry(secret, data, "own.since"));
  const auto time = parse_rfc3339(since);
  if (!time) return no_secret(secret, ": data[\"own.since\"] is no time of RFC 3339");
  own.since = *time;
  return own;
}

Result<Keys> decode_keys(const KeysSecret& secret, const std::string& text) {
  const json object = json::parse(text, nullptr, false);
  const json data = object.is_object() ? object.value("data", json::object()) : json::object();
  if (!data.is_object()) return no_secret(secret);
  Keys keys;
  WEIR_TRY(keys.authority.certificate_pem, entry(secret, data, "ca.crt"));
  WEIR_TRY(keys.authority.key_pem, entry(secret, data, "ca.key"));
  WEIR_TRY(keys.seed, entry(secret, data, "seed"));
  if (data.contains("next.crt")) {
    keys.next.emplace();
    WEIR_TRY(keys.next->certificate_pem, entry(secret, data, "next.crt"));
    WEIR_TRY(keys.next->key_pem, entry(secret, data, "next.key"));
  }
  if (data.contains("retired.crt")) {
    WEIR_TRY(keys.retired_pem, entry(secret, data, "retired.crt"));
  }
  WEIR_TRY(keys.own, decode_own(secret, data));
  return keys;
}

json data_of(const Keys& keys) {
  json data{{"ca.crt", to_base64(keys.authority.certificate_pem)},
            {"ca.key", to_base64(keys.authority.key_pem)},
            {"seed", to_base64(keys.seed)}};
  if (keys.next) {
    data["next.crt"] = to_base64(keys.next->certificate_pem);
    data["next.key"] = to_base64(keys.next->key_pem);
  }
  if (!keys.retired_pem.empty()) data["retired.crt"] = to_base64(keys.retired_pem);
  if (!keys.own.pem.empty()) data["own.crt"] = to_base64(keys.own.pem);
  if (!keys.own.retired_pem.empty()) data["own-retired.crt"] = to_base64(keys.own.retired_pem);
  if (!keys.own.pem.empty() || !keys.own.retired_pem.empty()) {
    data["own.since"] = to_base64(to_rfc3339(keys.own.since));
  }
  return data;
}

std::string encode_keys(const Keys& keys, const KeysSecret& secret) {
  return json{{"apiVersion", "v1"},
              {"kind", "Secret"},
              {"metadata",
               {{"name", secret.name},
                {"namespace", secret.namespace_name},
                {"labels", {{"app.kubernetes.io/part-of", "weir-operator"}}}}},
              {"type", "Opaque"},
              {"data", data_of(keys)}}
      .dump();
}

Error failed(const char* verb, const KeysSecret& secret, const kube::ApiError& error) {
  return error.to_error().with(std::string(verb) + " Secret " + secret.name);
}

}  // namespace

std::string key_of_job(const std::string& seed, const std::string& job_uid) {
  return hmac_sha256(seed, job_uid);
}

std::string bundle_of(const Keys& keys) {
  return keys.authority.certificate_pem + (keys.next ? keys.next->certificate_pem : "") +
         keys.retired_pem + keys.own.pem + keys.own.retired_pem;
}

Result<FoundKeys> read_keys(kube::Client& client, const KeysSecret& secret) {
  auto found = client.get(kube::secrets(), secret.namespace_name, secret.name);
  if (!found) return failed("get", secret, found.error());
  WEIR_TRY(Keys keys, decode_keys(secret, *found));
  return FoundKeys{std::move(keys), *std::move(found)};
}

Status write_keys(kube::Client& client, const KeysSecret& secret, const std::string& found_json,
                  const Keys& keys) {
  json object = json::parse(found_json, nullptr, false);
  if (!object.is_object()) return no_secret(secret);
  object["data"] = data_of(keys);
  const auto written =
      client.update(kube::secrets(), secret.namespace_name, secret.name, object.dump());
  if (!written) return failed("update", secret, written.error());
  return Unit{};
}

Status restore_keys(kube::Client& client, const KeysSecret& secret, const Keys& keys) {
  const auto created =
      client.create(kube::secrets(), secret.namespace_name, encode_keys(keys, secret));
  if (!created) return failed("create", secret, created.error());
  return Unit{};
}

Result<Keys> ensure_keys(kube::Client& client, const KeysSecret& secret, SystemTime now,
                         const std::string& own_pem) {
  for (int attempt = 0; attempt < kKeyAttempts; ++attempt) {
    const auto found = client.get(kube::secrets(), secret.namespace_name, secret.name);
    if (found) return decode_keys(secret, *found);
    if (found.error().http_status != 404) return failed("get", secret, found.error());
    const Keys keys{make_authority(now), random_bytes(kSeedBytes), {}, "", {own_pem, {}, ""}};
    const auto created =
        client.create(kube::secrets(), secret.namespace_name, encode_keys(keys, secret));
    if (created) return keys;
    if (created.error().http_status != 409) return failed("create", secret, created.error());
  }
  return Error{Code::kConflict, "Secret " + secret.name + " is created and deleted repeatedly"};
}

}  // namespace weir::control_server
