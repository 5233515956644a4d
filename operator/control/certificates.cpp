// SPDX-License-Identifier: Apache-2.0
#include "operator/control/certificates.h"

#include <ctime>

#include <openssl/ec.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include "operator/control/x509.h"
#include "worker/base/check.h"
#include "worker/base/digest.h"
#include "worker/base/text.h"

namespace weir::control_server {
namespace {

using Number = std::unique_ptr<BIGNUM, decltype(&BN_free)>;

constexpr std::chrono::minutes kClockSkew{10};  // between operator and workers
constexpr std::size_t kSerialBytes = 16;        // random, RFC 5280 allows 20

// The OpenSSL calls below fail only if memory is short or our arguments are wrong.
void extend(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* const extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  WEIR_CHECK(extension != nullptr && X509_add_ext(certificate, extension, -1) == 1,
             "an extension can be added");
  X509_EXTENSION_free(extension);
}

void set_serial(X509* certificate) {
  const std::string bytes = random_bytes(kSerialBytes);
  const Number number(BN_bin2bn(reinterpret_cast<const unsigned char*>(bytes.data()),
                                static_cast<int>(bytes.size()), nullptr),
                      BN_free);
  BN_to_ASN1_INTEGER(number.get(), X509_get_serialNumber(certificate));
}

X509Ptr new_certificate(EVP_PKEY* key, const std::string& common_name, SystemTime now,
                        std::chrono::seconds life) {
  X509Ptr certificate(X509_new(), X509_free);
  WEIR_CHECK(certificate != nullptr && key != nullptr, "OpenSSL makes keys and certificates");
  X509_set_version(certificate.get(), X509_VERSION_3);
  set_serial(certificate.get());
  const std::time_t start = std::chrono::system_clock::to_time_t(now - kClockSkew);
  const std::time_t end = std::chrono::system_clock::to_time_t(now + life);
  ASN1_TIME_set(X509_getm_notBefore(certificate.get()), start);
  ASN1_TIME_set(X509_getm_notAfter(certificate.get()), end);
  X509_set_pubkey(certificate.get(), key);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(certificate.get()), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(common_name.data()),
                             static_cast<int>(common_name.size()), -1, 0);
  return certificate;
}

bool is_ip(const std::string& name) {
  return name.find(':') != name.npos || name.find_first_not_of("0123456789.") == name.npos;
}

}  // namespace

Authority make_authority(SystemTime now) {
  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const X509Ptr certificate = new_certificate(key.get(), "weir-operator", now, kAuthorityLife);
  X509_set_issuer_name(certificate.get(), X509_get_subject_name(certificate.get()));
  extend(certificate.get(), certificate.get(), NID_basic_constraints, "critical,CA:TRUE,pathlen:0");
  extend(certificate.get(), certificate.get(), NID_key_usage, "critical,keyCertSign,cRLSign");
  extend(certificate.get(), certificate.get(), NID_subject_key_identifier, "hash");
  WEIR_CHECK(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0, "our key signs");
  return {pem_of(certificate.get()), pem_of(key.get())};
}

std::optional<Validity> validity(const std::string& certificate_pem) {
  const Bio text = memory(certificate_pem);
  const X509Ptr certificate(PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr), X509_free);
  ERR_clear_error();
  if (!certificate) return std::nullopt;
  return Validity{time_of(X509_get0_notBefore(certificate.get())) + kClockSkew,
                  time_of(X509_get0_notAfter(certificate.get()))};
}

Result<http::TlsIdentity> issue_leaf(const Authority& authority,
                                     const std::vector<std::string>& names, SystemTime now) {
  const Bio issuer_text = memory(authority.certificate_pem);
  const X509Ptr issuer(PEM_read_bio_X509(issuer_text.get(), nullptr, nullptr, nullptr), X509_free);
  const Key issuer_key = key_of(authority.key_pem);
  ERR_clear_error();
  if (!issuer || !issuer_key || X509_check_private_key(issuer.get(), issuer_key.get()) != 1) {
    ERR_clear_error();
    return invalid("authority of the control API: not a certificate with its key");
  }

  const Key key(EVP_EC_gen("P-256"), EVP_PKEY_free);
  const X509Ptr leaf = new_certificate(key.get(), "weir-operator control", now, kLeafLife);
  X509_set_issuer_name(leaf.get(), X509_get_subject_name(issuer.get()));
  const std::string alternatives =
      joined(names, ",", [](const auto& name) { return (is_ip(name) ? "IP:" : "DNS:") + name; });
  extend(leaf.get(), issuer.get(), NID_basic_constraints, "critical,CA:FALSE");
  extend(leaf.get(), issuer.get(), NID_key_usage, "critical,digitalSignature");
  extend(leaf.get(), issuer.get(), NID_ext_key_usage, "serverAuth");
  extend(leaf.get(), issuer.get(), NID_authority_key_identifier, "keyid");
  extend(leaf.get(), issuer.get(), NID_subject_alt_name, alternatives);
  WEIR_CHECK(X509_sign(leaf.get(), issuer_key.get(), EVP_sha256()) > 0, "our key signs");
  return http::TlsIdentity{pem_of(leaf.get()), pem_of(key.get())};
}

std::vector<std::string> control_names(const std::string& service,
                                       const std::string& namespace_name,
                                       const std::string& pod_ip) {
  const std::string qualified = service + "." + namespace_name;
  const std::string name = worker_name(service, namespace_name);
  std::vector<std::string> names{service, qualified, name, name + ".cluster.local"};
  if (!pod_ip.empty()) names.push_back(pod_ip);
  return names;
}

std::string worker_name(const std::string& service, const std::string& namespace_name) {
  return service + "." + namespace_name + ".svc";
}

}  // namespace weir::control_server
