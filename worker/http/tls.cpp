// SPDX-License-Identifier: Apache-2.0
#include "worker/http/tls.h"

#include <array>

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/pem.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include "worker/base/check.h"

namespace weir::http {
namespace {

// Returns the text of the oldest queued OpenSSL error and empties the queue.
std::string openssl_error() {
  std::array<char, 256> text{};
  const unsigned long code = ERR_get_error();
  ERR_clear_error();
  if (code == 0) return "unknown reason";
  ERR_error_string_n(code, text.data(), text.size());
  return text.data();
}

Error invalid(const std::string& what) {
  return {Code::kInvalid, what + ": " + openssl_error()};
}

TlsContext new_context(const SSL_METHOD* method) {
  TlsContext context(SSL_CTX_new(method), SSL_CTX_free);
  WEIR_CHECK(context != nullptr, "OpenSSL makes a context");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  // Otherwise an idle connection would keep two record buffers, about 34 kB.
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS | SSL_MODE_ENABLE_PARTIAL_WRITE |
                                      SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  ERR_clear_error();
  return context;
}

using Bio = std::unique_ptr<BIO, decltype(&BIO_free)>;
using Certificate = std::unique_ptr<X509, decltype(&X509_free)>;
using Key = std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)>;

Bio bio_of(const std::string& text) {
  return {BIO_new_mem_buf(text.data(), static_cast<int>(text.size())), BIO_free};
}

bool use_chain(SSL_CTX* context, const std::string& pem) {
  const Bio bio = bio_of(pem);
  const Certificate leaf(PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr), X509_free);
  if (!leaf || SSL_CTX_use_certificate(context, leaf.get()) != 1) return false;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    if (SSL_CTX_add0_chain_cert(context, next) != 1) {
      X509_free(next);
      return false;
    }
  }
  ERR_clear_error();  // the reader reports the end of the file as an error
  return true;
}

bool use_key(SSL_CTX* context, const std::string& pem) {
  const Bio bio = bio_of(pem);
  const Key key(PEM_read_bio_PrivateKey(bio.get(), nullptr, nullptr, nullptr), EVP_PKEY_free);
  return key && SSL_CTX_use_PrivateKey(context, key.get()) == 1;
}

// Adds each certificate of the text to the store; false if there is none.
bool trust_all(X509_STORE* store, const std::string& pem) {
  const Bio bio = bio_of(pem);
  bool any = false;
  while (X509* next = PEM_read_bio_X509(bio.get(), nullptr, nullptr, nullptr)) {
    const Certificate held(next, X509_free);
    any = X509_STORE_add_cert(store, next) == 1 || any;
  }
  if (any) ERR_clear_error();  // as above
  return any;
}

}  // namespace

Result<TlsContext> make_client_context(const Options& options) {
  TlsContext context = new_context(TLS_client_method());
  if (options.insecure) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_NONE, nullptr);
  } else {
    X509_STORE* const store = SSL_CTX_get_cert_store(context.get());
    if (!options.ca_pem.empty()) {
      if (!trust_all(store, options.ca_pem)) return invalid("CA certificates");
    } else if (SSL_CTX_load_verify_file(context.get(), options.ca_file.c_str()) != 1) {
      return invalid("CA file " + options.ca_file);
    }
    trust_as_given(store);
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER, nullptr);
  }
  if (!options.cert_pem.empty()) {
    if (!use_chain(context.get(), options.cert_pem)) return invalid("client certificate");
  } else if (options.cert_file.empty()) {
    return context;
  } else if (SSL_CTX_use_certificate_chain_file(context.get(), options.cert_file.c_str()) != 1) {
    return invalid("certificate file " + options.cert_file);
  }
  if (!options.key_pem.empty()) {
    if (!use_key(context.get(), options.key_pem)) return invalid("client key");
  } else if (SSL_CTX_use_PrivateKey_file(context.get(), options.key_file.c_str(),
                                         SSL_FILETYPE_PEM) != 1) {
    return invalid("key file " + options.key_file);
  }
  return context;
}

Result<TlsContext> make_server_context(const TlsIdentity& identity) {
  TlsContext context = new_context(TLS_server_method());
  if (!use_chain(context.get(), identity.certificate_pem)) return invalid("server certificate");
  if (!use_key(context.get(), identity.key_pem)) return invalid("server key");
  return context;
}

void trust_as_given(x509_store_st* store) {
  X509_STORE_set_flags(store, X509_V_FLAG_PARTIAL_CHAIN);
}

void expect_peer(ssl_st* connection, const std::string& name_or_ip) {
  X509_VERIFY_PARAM* const rules = SSL_get0_param(connection);
  if (X509_VERIFY_PARAM_set1_ip_asc(rules, name_or_ip.c_str()) == 1) return;
  ERR_clear_error();  // not an IP address
  X509_VERIFY_PARAM_set_hostflags(rules, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  WEIR_CHECK(X509_VERIFY_PARAM_set1_host(rules, name_or_ip.data(), name_or_ip.size()) == 1,
             "a host name can be set");
  // The macro SSL_set_tlsext_host_name without its old-style cast.
  std::string name = name_or_ip;
  SSL_ctrl(connection, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name, name.data());
}

std::string refusal(const ssl_st* connection) {
  const long verdict = SSL_get_verify_result(connection);
  return verdict == X509_V_OK ? "" : X509_verify_cert_error_string(verdict);
}

}  // namespace weir::http
