#pragma once

// Formats of the addresses the daemon listens on, and of its folders and files. A hint is returned
// for what is not in format.

#include <optional>
#include <string>
#include <string_view>

namespace gpuperf {

inline constexpr std::string_view kTcpAddressFormat = "host:port, [IPv6]:port or empty";
inline constexpr std::string_view kTcpAddressPattern =
    R"(^$|^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$)";
std::optional<std::string> find_tcp_address_fault(std::string_view address);

inline constexpr std::string_view kRpcAddressFormat =
    "unix:/absolute/path, host:port, [IPv6]:port or empty";
inline constexpr std::string_view kRpcAddressPattern =
    R"(^$|^unix:/.+$|^([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}$)";
std::optional<std::string> find_rpc_address_fault(std::string_view address);

inline constexpr std::string_view kEndpointFormat = "http://host:port, https://host:port or empty";
inline constexpr std::string_view kEndpointPattern = R"(^$|^https?://[^/@]+/?$)";
std::optional<std::string> find_endpoint_fault(std::string_view endpoint);

inline constexpr std::string_view kFileFormat = "an absolute path of a file or empty";
inline constexpr std::string_view kFilePattern = R"(^$|^/.*[^/]$)";
std::optional<std::string> find_file_fault(std::string_view path);

// Keys and values of gRPC metadata. Keys that end in -bin hold bytes, which JSON cannot; "grpc-"
// and ":" are the protocol's own.
inline constexpr std::string_view kHeadersFormat = "an object of header: value";
inline constexpr std::string_view kHeaderNamePattern = "^(?!grpc-)(?!.*-bin$)[A-Za-z0-9._-]+$";
std::optional<std::string> find_header_fault(std::string_view name, std::string_view value);

inline constexpr std::string_view kAttributesFormat = "an object of attribute: text";
inline constexpr std::string_view kAttributeNamePattern = R"(^[A-Za-z0-9._/-]+$)";
std::optional<std::string> find_attribute_fault(std::string_view name, std::string_view value);

inline constexpr std::string_view kFolderFormat = "an absolute path or empty";
inline constexpr std::string_view kFolderPattern = R"(^$|^/.+$)";
std::optional<std::string> find_folder_fault(std::string_view path);

inline constexpr std::string_view kCdiSpecFormat = "an absolute path that ends in .json, or empty";
inline constexpr std::string_view kCdiSpecPattern = R"(^$|^/.*[^/]\.json$)";
std::optional<std::string> find_cdi_spec_fault(std::string_view path);

inline constexpr std::string_view kSocketPathFormat =
    "an absolute path of at most 107 bytes or empty";
inline constexpr std::string_view kSocketPathPattern = R"(^$|^/.{1,106}$)";
std::optional<std::string> find_socket_path_fault(std::string_view path);

}  // namespace gpuperf
