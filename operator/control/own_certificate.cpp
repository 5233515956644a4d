// SPDX-License-Identifier: Apache-2.0
#include "operator/control/own_certificate.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <vector>

#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "operator/control/x509.h"
#include "worker/base/check.h"
#include "worker/base/time_text.h"
#include "worker/base/utf8.h"
#include "worker/http/tls.h"

namespace weir::control_server {
namespace {

using Chain = std::vector<X509Ptr>;
using Stack = std::unique_ptr<STACK_OF(X509), void (*)(STACK_OF(X509)*)>;

// A chain and its key take a few thousand bytes; the authority goes into a ConfigMap of every job.
constexpr std::size_t kLargestFile = 64 * 1024;
// A kubelet may replace the files while they are read; a second attempt reads files of one version.
constexpr int kCertificateAttempts = 2;

constexpr std::size_t kLongestNames = 200;  // bytes in a message

struct File {
  std::string path, text;
};
struct Files {
  File certificate, key, authority;
};

Error wrong(const File& file, const std::string& why) {
  return {Code::kInvalid, file.path + ": " + why};
}

Result<File> read(const std::string& path) {
  File file{path, ""};
  errno = 0;
  std::ifstream in(path, std::ios::binary);
  file.text.resize(kLargestFile + 1);
  in.read(file.text.data(), static_cast<std::streamsize>(file.text.size()));
  if (!in.is_open() || in.bad()) {
    return Error{errno == ENOENT ? Code::kNotFound : Code::kInvalid,
                 path + ": " + (errno == 0 ? "cannot be read" : std::strerror(errno))};
  }
  file.text.resize(static_cast<std::size_t>(in.gcount()));
  if (file.text.size() > kLargestFile) return wrong(file, "is larger than 64 KiB");
  return file;
}

Result<Files> read_all(const std::string& folder) {
  Files files;
  WEIR_TRY(files.certificate, read(folder + "/tls.crt"));
  WEIR_TRY(files.key, read(folder + "/tls.key"));
  auto authority = read(folder + "/ca.crt");
  if (!authority && authority.error().code != Code::kNotFound) return authority.error();
  files.authority = authority ? *std::move(authority) : File{folder + "/ca.crt", ""};
  return files;
}

// All certificates of the file. Text between them is skipped, as OpenSSL's own readers do.
Result<Chain> certificates_of(const File& file) {
  const Bio text = memory(file.text);
  Chain chain;
  while (X509* next = PEM_read_bio_X509(text.get(), nullptr, nullptr, nullptr)) {
    chain.emplace_back(next, X509_free);
  }
  const unsigned long end = ERR_peek_last_error();
  ERR_clear_error();
  if (ERR_GET_LIB(end) != ERR_LIB_PEM || ERR_GET_REASON(end) != PEM_R_NO_START_LINE) {
    return wrong(file, "certificate " + std::to_string(chain.size() + 1) + " cannot be read");
  }
  if (chain.empty()) return wrong(file, "holds no certificate in PEM");
  return chain;
}

std::string pem_of(const Chain& chain) {
  std::string text;
  for (const X509Ptr& each : chain) text += control_server::pem_of(each.get());
  return text;
}

std::string names_of(X509* leaf) {
  std::string out;
  auto* const names =
      static_cast<GENERAL_NAMES*>(X509_get_ext_d2i(leaf, NID_subject_alt_name, nullptr, nullptr));
  for (int i = 0; i < sk_GENERAL_NAME_num(names); ++i) {
    const GENERAL_NAME* const name = sk_GENERAL_NAME_value(names, i);
    if (name->type != GEN_DNS) continue;
    const std::string text(reinterpret_cast<const char*>(ASN1_STRING_get0_data(name->d.dNSName)),
                           static_cast<std::size_t>(ASN1_STRING_length(name->d.dNSName)));
    out += (out.empty() ? "" : ", ") + text;
  }
  GENERAL_NAMES_free(names);
  return out.empty() ? "no DNS name at all" : "only " + one_line(out, kLongestNames);
}

Status check_leaf(const Files& files, X509* leaf, const std::string& dns_name, SystemTime now) {
  const Key key = key_of(files.key.text);
  if (!key) return wrong(files.key, "holds no private key in PEM without a password");
  const bool fits = X509_check_private_key(leaf, key.get()) == 1;
  ERR_clear_error();
  if (!fits) {
    return wrong(files.key, "is not the key of the first certificate in " + files.certificate.path);
  }
  const SystemTime from = time_of(X509_get0_notBefore(leaf));
  const SystemTime until = time_of(X509_get0_notAfter(leaf));
  if (until <= now) return wrong(files.certificate, "expired at " + to_rfc3339(until));
  if (from > now) return wrong(files.certificate, "is not valid before " + to_rfc3339(from));
  if (X509_check_host(leaf, dns_name.data(), dns_name.size(), X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS,
                      nullptr) != 1) {
    return wrong(files.certificate,
                 "is not for " + dns_name + ", which workers connect to; it has " + names_of(leaf));
  }
  return Unit{};
}

// Verifies the chain from the leaf to one of the authorities; returns the earliest end of its
// certificates.
Result<SystemTime> check_chain(const Files& files, const Chain& chain, const Chain& authorities,
                               int security_level, SystemTime now) {
  const std::unique_ptr<X509_STORE, decltype(&X509_STORE_free)> trusted(X509_STORE_new(),
                                                                        X509_STORE_free);
  for (const X509Ptr& each : authorities) X509_STORE_add_cert(trusted.get(), each.get());
  http::trust_as_given(trusted.get());
  const Stack untrusted(sk_X509_new_null(), [](STACK_OF(X509) * stack) { sk_X509_free(stack); });
  for (const X509Ptr& each : chain) sk_X509_push(untrusted.get(), each.get());
  const std::unique_ptr<X509_STORE_CTX, decltype(&X509_STORE_CTX_free)> context(
      X509_STORE_CTX_new(), X509_STORE_CTX_free);
  WEIR_CHECK(
      X509_STORE_CTX_init(context.get(), trusted.get(), chain.front().get(), untrusted.get()) == 1,
      "OpenSSL begins to verify");
  X509_STORE_CTX_set_default(context.get(), "ssl_server");  // as a client does
  X509_VERIFY_PARAM* const rules = X509_STORE_CTX_get0_param(context.get());
  X509_VERIFY_PARAM_set_time(rules, std::chrono::system_clock::to_time_t(now));
  X509_VERIFY_PARAM_set_auth_level(rules, security_level);
  const bool good = X509_verify_cert(context.get()) == 1;
  ERR_clear_error();
  if (!good) {
    const std::string by =
        files.authority.text.empty() ? "its last certificate" : files.authority.path;
    return wrong(files.certificate,
                 "is not trusted by " + by + ": " +
                     X509_verify_cert_error_string(X509_STORE_CTX_get_error(context.get())));
  }
  SystemTime until = SystemTime::max();
  const STACK_OF(X509)* const verified = X509_STORE_CTX_get0_chain(context.get());
  for (int i = 0; i < sk_X509_num(verified); ++i) {
    until = std::min(until, time_of(X509_get0_notAfter(sk_X509_value(verified, i))));
  }
  return until;
}

bool can_stand_in(const Chain& chain) {
  return chain.size() > 1 || (X509_get_extension_flags(chain.back().get()) & EXFLAG_SS) != 0;
}

Result<OwnCertificate> verify(const Files& files, const std::string& dns_name, SystemTime now) {
  WEIR_TRY(const Chain chain, certificates_of(files.certificate));
  WEIR_OK(check_leaf(files, chain.front().get(), dns_name, now));
  OwnCertificate own;
  own.identity = {pem_of(chain), files.key.text};
  const auto context = http::make_server_context(own.identity);
  if (!context) return context.error().with(files.certificate.path);
  Chain authorities;
  if (!files.authority.text.empty()) {
    WEIR_TRY(authorities, certificates_of(files.authority));
  } else if (can_stand_in(chain)) {
    X509_up_ref(chain.back().get());
    authorities.emplace_back(chain.back().get(), X509_free);
  } else {
    return wrong(files.authority, "is missing or empty, and " + files.certificate.path +
                                      " holds no authority after its first certificate");
  }
  WEIR_TRY(own.until,
           check_chain(files, chain, authorities, SSL_CTX_get_security_level(context->get()), now));
  own.authority_pem = pem_of(authorities);
  return own;
}

}  // namespace

Result<OwnCertificate> read_own_certificate(const std::string& folder, const std::string& dns_name,
                                            SystemTime now) {
  Result<OwnCertificate> own = invalid(folder);
  for (int attempt = 0; attempt < kCertificateAttempts && !own; ++attempt) {
    const auto files = read_all(folder);
    own = files ? verify(*files, dns_name, now) : invalid(files.error().message);
  }
  return own;
}

}  // namespace weir::control_server
