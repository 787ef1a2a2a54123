# What is installed where, and the Debian packages made of it: cpack -G DEB --config build/CPackConfig.cmake

install(TARGETS gpuperfd RUNTIME DESTINATION sbin COMPONENT gpuperfd)
install(FILES deploy/config.json DESTINATION /etc/gpuperf COMPONENT gpuperfd)
install(FILES docs/config.schema.json DESTINATION share/gpuperf COMPONENT gpuperfd)
install(FILES deploy/systemd/gpuperfd.service DESTINATION lib/systemd/system COMPONENT gpuperfd)
install(FILES deploy/systemd/gpuperf.sysusers DESTINATION lib/sysusers.d RENAME gpuperf.conf COMPONENT gpuperfd)
install(FILES deploy/systemd/gpuperf.tmpfiles DESTINATION lib/tmpfiles.d RENAME gpuperf.conf COMPONENT gpuperfd)

install(TARGETS gpuperfctl RUNTIME DESTINATION bin COMPONENT gpuperfctl)
install(FILES tests/recordings/decode.capture DESTINATION share/gpuperf RENAME demo.capture COMPONENT gpuperfctl)
# Each is what `gpuperfctl completion SHELL` prints; shell, folder, file.
foreach(COMPLETION bash:bash-completion/completions:gpuperfctl zsh:zsh/vendor-completions:_gpuperfctl
                   fish:fish/vendor_completions.d:gpuperfctl.fish)
  string(REPLACE ":" ";" COMPLETION ${COMPLETION})
  list(GET COMPLETION 0 SHELL)
  list(GET COMPLETION 1 FOLDER)
  list(GET COMPLETION 2 FILE)
  set(SCRIPT ${CMAKE_BINARY_DIR}/completions/${FILE})
  add_custom_command(OUTPUT ${SCRIPT}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/completions
    COMMAND gpuperfctl completion ${SHELL} > ${SCRIPT}
    DEPENDS gpuperfctl VERBATIM)
  list(APPEND COMPLETION_SCRIPTS ${SCRIPT})
  install(FILES ${SCRIPT} DESTINATION share/${FOLDER} COMPONENT gpuperfctl)
endforeach()
add_custom_target(completions ALL DEPENDS ${COMPLETION_SCRIPTS})

if(TARGET gpuperf_injector)  # needs CUPTI's headers
  # One path on every system: workloads name it in CUDA_INJECTION64_PATH.
  install(TARGETS gpuperf_injector LIBRARY DESTINATION lib/gpuperf COMPONENT libgpuperf-injector)
endif()

file(GLOB GRAFANA_DASHBOARDS CONFIGURE_DEPENDS deploy/grafana/*.json)
file(GLOB PROMETHEUS_RULES CONFIGURE_DEPENDS deploy/prometheus/*.yaml deploy/prometheus/*.yml)
install(FILES ${GRAFANA_DASHBOARDS} DESTINATION share/gpuperf/grafana COMPONENT gpuperf-dashboards)
install(FILES ${PROMETHEUS_RULES} DESTINATION share/gpuperf/prometheus COMPONENT gpuperf-dashboards)

# Man pages: what the programs say of themselves and the schema of the configuration, in templates.
foreach(PAGE gpuperfd.8:gpuperfd gpuperfctl.1:gpuperfctl gpuperf-config.5:gpuperfd libgpuperf_injector.7:libgpuperf-injector)
  string(REPLACE ":" ";" PAGE ${PAGE})
  list(GET PAGE 0 NAME)
  list(GET PAGE 1 COMPONENT)
  string(REGEX REPLACE ".*\\." "" SECTION ${NAME})
  set(MADE ${CMAKE_BINARY_DIR}/man/${NAME})
  set(MAKE_MAN ${CMAKE_SOURCE_DIR}/docs/man/make_man.py)
  add_custom_command(OUTPUT ${MADE}
    COMMAND ${CMAKE_COMMAND} -E make_directory ${CMAKE_BINARY_DIR}/man
    COMMAND /usr/bin/python3 ${MAKE_MAN} ${CMAKE_SOURCE_DIR}/docs/man/${NAME}.in ${MADE}
            --gpuperfctl $<TARGET_FILE:gpuperfctl> --gpuperfd $<TARGET_FILE:gpuperfd>
            --schema ${CMAKE_SOURCE_DIR}/docs/config.schema.json
    DEPENDS ${MAKE_MAN} docs/man/${NAME}.in docs/config.schema.json gpuperfctl gpuperfd VERBATIM)
  list(APPEND MAN_PAGES ${MADE})
  add_custom_command(OUTPUT ${MADE}.gz COMMAND gzip -9nc ${MADE} > ${MADE}.gz DEPENDS ${MADE} VERBATIM)
  list(APPEND MAN_PAGES ${MADE}.gz)
  if(NOT COMPONENT STREQUAL libgpuperf-injector OR TARGET gpuperf_injector)
    install(FILES ${MADE}.gz DESTINATION share/man/man${SECTION} COMPONENT ${COMPONENT})
  endif()
endforeach()
add_custom_target(man ALL DEPENDS ${MAN_PAGES})

# ---- Packages ----
set(PACKAGES gpuperfd gpuperfctl)
if(TARGET gpuperf_injector)
  list(APPEND PACKAGES libgpuperf-injector)
endif()
if(GRAFANA_DASHBOARDS OR PROMETHEUS_RULES)
  list(APPEND PACKAGES gpuperf-dashboards)
endif()

set(GPUPERF_PACKAGE_VERSION ${PROJECT_VERSION} CACHE STRING "Version of the Debian packages")
set(GPUPERF_MAINTAINER "gpuperf maintainers <maintainers@gpuperf.invalid>" CACHE STRING
    "Maintainer of the Debian packages, with the address that answers for them")

# Every package says what it is under which terms, and what is new.
set(DOCS ${CMAKE_BINARY_DIR}/debian)
string(TIMESTAMP CHANGELOG_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)  # SOURCE_DATE_EPOCH where that is set
configure_file(deploy/debian/changelog.in ${DOCS}/changelog.Debian @ONLY)
configure_file(CHANGELOG.md ${DOCS}/changelog COPYONLY)
foreach(TEXT changelog changelog.Debian)
  execute_process(COMMAND gzip -9nc ${DOCS}/${TEXT} OUTPUT_FILE ${DOCS}/${TEXT}.gz COMMAND_ERROR_IS_FATAL ANY)
endforeach()
foreach(PACKAGE ${PACKAGES})
  install(FILES deploy/debian/copyright ${DOCS}/changelog.gz ${DOCS}/changelog.Debian.gz
          DESTINATION share/doc/${PACKAGE} COMPONENT ${PACKAGE})
  set(LDCONFIG "")
  if(PACKAGE STREQUAL libgpuperf-injector)
    set(LDCONFIG "# cpack calls it for every folder below /usr/lib; it does no harm.\n${PACKAGE}: maintscript-calls-ldconfig\n")
  endif()
  configure_file(deploy/debian/lintian-overrides.in ${DOCS}/${PACKAGE}.overrides @ONLY)
  install(FILES ${DOCS}/${PACKAGE}.overrides DESTINATION share/lintian/overrides RENAME ${PACKAGE}
          COMPONENT ${PACKAGE})
endforeach()

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME gpuperf)
set(CPACK_PACKAGE_VERSION ${GPUPERF_PACKAGE_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/packages)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL ${PACKAGES})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_COMPONENTS_GROUPING ONE_PER_GROUP)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS
    OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${GPUPERF_MAINTAINER})
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_COMPRESSION_TYPE xz)

set(CONTROL ${CMAKE_SOURCE_DIR}/deploy/debian)
set(CPACK_DEBIAN_GPUPERFD_PACKAGE_NAME gpuperfd)
set(CPACK_DEBIAN_GPUPERFD_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_GPUPERFD_PACKAGE_SHLIBDEPS ON)
# A container has no systemd, but its two small programs.
set(CPACK_DEBIAN_GPUPERFD_PACKAGE_DEPENDS
    "init-system-helpers (>= 1.54), systemd | systemd-sysusers, systemd | systemd-tmpfiles")
set(CPACK_DEBIAN_GPUPERFD_PACKAGE_RECOMMENDS gpuperfctl)
set(CPACK_DEBIAN_GPUPERFD_PACKAGE_SUGGESTS "libgpuperf-injector, gpuperf-dashboards")
set(CPACK_DEBIAN_GPUPERFD_PACKAGE_CONTROL_EXTRA
    ${CONTROL}/conffiles ${CONTROL}/postinst ${CONTROL}/prerm ${CONTROL}/postrm)
set(CPACK_COMPONENT_GPUPERFD_DESCRIPTION
"observability daemon for GPU hosts
Counts and times calls of the CUDA runtime and driver, cuBLAS, cuDNN, NCCL
and PyTorch in all processes and containers. It uses uprobes of the Linux
kernel, so no process is changed or restarted. Slow calls are kept with
their arguments, stacks and time split. It serves metrics to Prometheus and
everything else to gpuperfctl.")

set(CPACK_DEBIAN_GPUPERFCTL_PACKAGE_NAME gpuperfctl)
set(CPACK_DEBIAN_GPUPERFCTL_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_GPUPERFCTL_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_GPUPERFCTL_PACKAGE_SUGGESTS "gpuperfd, bash-completion")
set(CPACK_COMPONENT_GPUPERFCTL_DESCRIPTION
"command-line client of gpuperfd
Shows statistics of functions and GPU kernels, slow calls and why they were
slow, captures with flame graphs and timelines, the state of GPUs, and why
data is missing.")

set(CPACK_DEBIAN_LIBGPUPERF-INJECTOR_PACKAGE_NAME libgpuperf-injector)
set(CPACK_DEBIAN_LIBGPUPERF-INJECTOR_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_LIBGPUPERF-INJECTOR_PACKAGE_SHLIBDEPS ON)
set(CPACK_COMPONENT_LIBGPUPERF-INJECTOR_DESCRIPTION
"library in CUDA processes that reports GPU work to gpuperfd
NVIDIA's driver loads it into processes whose environment variable
CUDA_INJECTION64_PATH names it. It reads kernels, copies and waits from
CUPTI and sends them to gpuperfd; without the daemon it does nothing. It
depends only on the C library.")

set(CPACK_DEBIAN_GPUPERF-DASHBOARDS_PACKAGE_NAME gpuperf-dashboards)
set(CPACK_DEBIAN_GPUPERF-DASHBOARDS_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_GPUPERF-DASHBOARDS_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_GPUPERF-DASHBOARDS_PACKAGE_SUGGESTS prometheus)
set(CPACK_COMPONENT_GPUPERF-DASHBOARDS_DESCRIPTION
"dashboards and alert rules for the metrics of gpuperfd
Dashboards for Grafana in /usr/share/gpuperf/grafana, and recording and
alert rules for Prometheus in /usr/share/gpuperf/prometheus.")

# cpack packs what is built; it does not build all tests first.
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)
include(CPack)
