#pragma once

// Formats of the addresses the daemon listens on, and of its folders. A hint is returned for what
// is not in format.

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

inline constexpr std::string_view kFolderFormat = "an absolute path or empty";
inline constexpr std::string_view kFolderPattern = R"(^$|^/.+$)";
std::optional<std::string> find_folder_fault(std::string_view path);

inline constexpr std::string_view kSocketPathFormat =
    "an absolute path of at most 107 bytes or empty";
inline constexpr std::string_view kSocketPathPattern = R"(^$|^/.{1,106}$)";
std::optional<std::string> find_socket_path_fault(std::string_view path);

}  // namespace gpuperf
