// SPDX-License-Identifier: Apache-2.0
#include "operator/control/job_key.h"

#include <nlohmann/json.hpp>

#include "worker/base/digest.h"

namespace weir::control_server {
namespace {

using nlohmann::json;

constexpr std::size_t kSeedBytes = 32;
constexpr int kAttempts = 3;  // read, create, read: once more if it was deleted in between

Result<std::string> entry(const json& data, const char* name) {
  const auto found = data.find(name);
  const auto value = found != data.end() && found->is_string()
                         ? from_base64(found->get<std::string>())
                         : std::nullopt;
  if (!value || value->empty()) {
    return Error{Code::kInvalid, std::string("Secret ") + kKeysSecret + ": data[\"" + name +
                                     "\"] is missing or not base64"};
  }
  return *value;
}

Result<Keys> decode_keys(const std::string& secret) {
  const json object = json::parse(secret, nullptr, false);
  const json data = object.is_object() ? object.value("data", json::object()) : json::object();
  if (!data.is_object()) return Error{Code::kInvalid, std::string("Secret ") + kKeysSecret};
  Keys keys;
  WEIR_TRY(keys.authority.certificate_pem, entry(data, "ca.crt"));
  WEIR_TRY(keys.authority.key_pem, entry(data, "ca.key"));
  WEIR_TRY(keys.seed, entry(data, "seed"));
  if (data.contains("next.crt")) {
    keys.next.emplace();
    WEIR_TRY(keys.next->certificate_pem, entry(data, "next.crt"));
    WEIR_TRY(keys.next->key_pem, entry(data, "next.key"));
  }
  if (data.contains("retired.crt")) {
    WEIR_TRY(keys.retired_pem, entry(data, "retired.crt"));
  }
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
  return data;
}

std::string encode_keys(const Keys& keys, const std::string& namespace_name) {
  return json{{"apiVersion", "v1"},
              {"kind", "Secret"},
              {"metadata",
               {{"name", kKeysSecret},
                {"namespace", namespace_name},
                {"labels", {{"app.kubernetes.io/part-of", "weir-operator"}}}}},
              {"type", "Opaque"},
              {"data", data_of(keys)}}
      .dump();
}

Error failed(const char* verb, const kube::ApiError& error) {
  return error.to_error().with(std::string(verb) + " Secret " + kKeysSecret);
}

}  // namespace

std::string key_of_job(const std::string& seed, const std::string& job_uid) {
  return hmac_sha256(seed, job_uid);
}

std::string bundle_of(const Keys& keys) {
  return keys.authority.certificate_pem + (keys.next ? keys.next->certificate_pem : "") +
         keys.retired_pem;
}

Result<FoundKeys> read_keys(kube::Client& client, const std::string& namespace_name) {
  auto found = client.get(kube::secrets(), namespace_name, kKeysSecret);
  if (!found) return failed("get", found.error());
  WEIR_TRY(Keys keys, decode_keys(*found));
  return FoundKeys{std::move(keys), *std::move(found)};
}

Status write_keys(kube::Client& client, const std::string& namespace_name,
                  const std::string& found_json, const Keys& keys) {
  json object = json::parse(found_json, nullptr, false);
  if (!object.is_object()) return Error{Code::kInvalid, std::string("Secret ") + kKeysSecret};
  object["data"] = data_of(keys);
  const auto written = client.update(kube::secrets(), namespace_name, kKeysSecret, object.dump());
  if (!written) return failed("update", written.error());
  return Unit{};
}

Result<Keys> ensure_keys(kube::Client& client, const std::string& namespace_name, SystemTime now) {
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const auto found = client.get(kube::secrets(), namespace_name, kKeysSecret);
    if (found) return decode_keys(*found);
    if (found.error().http_status != 404) return failed("get", found.error());
    const Keys keys{make_authority(now), random_bytes(kSeedBytes)};
    const auto created =
        client.create(kube::secrets(), namespace_name, encode_keys(keys, namespace_name));
    if (created) return keys;
    if (created.error().http_status != 409) return failed("create", created.error());
  }
  return Error{Code::kConflict, std::string("Secret ") + kKeysSecret + " comes and goes"};
}

}  // namespace weir::control_server
