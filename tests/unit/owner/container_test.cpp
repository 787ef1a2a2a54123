#include "daemon/owner/container.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/unit/probe/fake_proc.h"

namespace gpuperf {
namespace {

const std::string kId = "3f4a0c9d1b2e8f7a6b5c4d3e2f1a0b9c8d7e6f5a4b3c2d1e0f9a8b7c6d5e4f3a";
const std::string kOther = "00000000000000000000000000000000000000000000000000000000deadbeef";
const std::string kUid = "0d2a9e1b-7c3f-4b5e-9a8d-6f1e2c3b4a59";
const std::string kUidUnderscored = "0d2a9e1b_7c3f_4b5e_9a8d_6f1e2c3b4a59";
const std::string kUidBare = "0d2a9e1b7c3f4b5e9a8d6f1e2c3b4a59";

struct CgroupCase {
  const char* name;
  std::string text;
  ContainerIds expected;
};

const ContainerIds kContainer{.container = "3f4a0c9d1b2e"};
const ContainerIds kPodContainer{.container = "3f4a0c9d1b2e", .pod_uid = kUid};

const CgroupCase kCases[] = {
    {"Nothing", "", {}},
    {"HostSession", "0::/user.slice/user-1000.slice/session-3.scope\n", {}},
    {"HostService", "0::/system.slice/docker.service\n", {}},
    {"OwnNamespace", "0::/\n", {}},
    {"DockerSystemd", "0::/system.slice/docker-" + kId + ".scope\n", kContainer},
    {"DockerVersion1",
     "12:pids:/docker/" + kId + "\n11:memory:/docker/" + kId + "\n1:name=systemd:/docker/" + kId +
         "\n0::/system.slice/containerd.service\n",
     kContainer},
    {"DockerInDocker", "0::/docker/" + kOther + "/docker/" + kId + "\n", kContainer},
    {"InitInContainer", "0::/system.slice/docker-" + kId + ".scope/init.scope\n", kContainer},
    {"PodmanRoot", "0::/machine.slice/libpod-" + kId + ".scope/container\n", kContainer},
    {"PodmanUser",
     "0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-" + kId +
         ".scope/container\n",
     kContainer},
    {"PodmanPayload", "0::/machine.slice/libpod-payload-" + kId + "\n", kContainer},
    {"PodmanMonitor", "0::/machine.slice/libpod-conmon-" + kId + ".scope\n", {}},
    {"Ecs", "4:memory:/ecs/54d1f2ac-ab3d-4f4d-9f43-1a2b3c4d5e6f/" + kId + "\n", kContainer},
    {"KubernetesContainerdSystemd",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + kUidUnderscored +
         ".slice/cri-containerd-" + kId + ".scope\n",
     kPodContainer},
    {"KubernetesGuaranteed",
     "0::/kubepods.slice/kubepods-pod" + kUidUnderscored + ".slice/cri-containerd-" + kId +
         ".scope\n",
     kPodContainer},
    {"KubernetesCrio",
     "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + kUidUnderscored +
         ".slice/crio-" + kId + ".scope/container\n",
     kPodContainer},
    {"KubernetesCrioMonitor",
     "0::/kubepods.slice/kubepods-pod" + kUidUnderscored + ".slice/crio-conmon-" + kId + ".scope\n",
     {.pod_uid = kUid}},
    {"KubernetesCgroupfs", "11:memory:/kubepods/burstable/pod" + kUid + "/" + kId + "\n",
     kPodContainer},
    {"KubernetesDocker",
     "2:cpu:/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + kUidUnderscored +
         ".slice/docker-" + kId + ".scope\n",
     kPodContainer},
    {"KubernetesContainerdColons",
     "0::/system.slice/containerd.service/kubepods-burstable-pod" + kUidUnderscored +
         ".slice:cri-containerd:" + kId + "\n",
     kPodContainer},
    {"KubernetesStaticPod",
     "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + kUidBare +
         ".slice/cri-containerd-" + kId + ".scope\n",
     {.container = "3f4a0c9d1b2e", .pod_uid = kUidBare}},
    {"KubernetesInDocker",
     "0::/docker/" + kOther +
         "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
         "kubelet-kubepods-besteffort-pod" +
         kUidUnderscored + ".slice/cri-containerd-" + kId + ".scope\n",
     kPodContainer},
    {"KubernetesFromASiblingNamespace",
     "0::/../../kubepods-pod" + kUidUnderscored + ".slice/cri-containerd-" + kId + ".scope\n",
     kPodContainer},
    {"ContainerInALaterLine", "12:rdma:/\n4:memory:/docker/" + kId + "\n0::/\n", kContainer},
    {"GardenOverRunc", "0::/system.slice/garden.service/garden/" + kId + "\n", kContainer},
    {"NestedPodmanInPod",
     "0::/kubepods.slice/kubepods-pod" + kUidUnderscored + ".slice/cri-containerd-" + kOther +
         ".scope/machine.slice/libpod-" + kId + ".scope/container\n",
     kPodContainer},
    {"PodWithoutContainer", "0::/kubepods/pod" + kUid + "\n", {.pod_uid = kUid}},
    {"ShortId", "0::/docker/" + kId.substr(1) + "\n", {}},
    {"LongId", "0::/docker/a" + kId + "\n", {}},
    {"UpperCaseId", "0::/docker/A" + kId.substr(1) + "\n", {}},
    {"NotAPod", "0::/podman-" + kUid + "/tripod" + kUid + "\n", {}},
    {"BrokenUid", "0::/kubepods/pod0d2a9e1b-7c3f-4b5e-9a8d_/x\n", {}},
    {"UidTooLong", "0::/kubepods/pod" + kUid + "0\n", {}},
    {"NoColons", "/docker/" + kId + "\n", {}},
    {"NoEndOfLine", "0::/docker/" + kId, kContainer},
    {"Binary", std::string("\0\xff:\0:/\0pod\0", 10), {}},
};

class CgroupTest : public testing::TestWithParam<CgroupCase> {};

TEST_P(CgroupTest, FindsContainerAndPod) {
  EXPECT_EQ(parse_cgroup(GetParam().text), GetParam().expected) << GetParam().text;
}

INSTANTIATE_TEST_SUITE_P(Lines, CgroupTest, testing::ValuesIn(kCases),
                         [](const auto& test) { return std::string(test.param.name); });

gpuperf_process_info make_info(const std::vector<std::string>& names) {
  gpuperf_process_info info{};
  for (size_t i = 0; i < names.size(); ++i) names[i].copy(info.cgroup[i], sizeof info.cgroup[i]);
  return info;
}

TEST(ContainerTest, ReadsTheOwnerOfAProcess) {
  FakeProc fake;
  fake.add_process(7, "/bin/a");
  fake.write(7, "comm", "my prog\n");
  fake.write(7, "cgroup", "0::/kubepods/pod" + kUid + "/" + kId + "\n");
  fake.write(7, "environ", std::string("HOME=/\0SLURM_JOB_ID=41\0SLURM_PROCID=3\0", 38));

  EXPECT_EQ(read_owner(fake.proc(), {.pid = 7}, nullptr), (Owner{.comm = "my prog",
                                                                 .container = "3f4a0c9d1b2e",
                                                                 .pod = kUid,
                                                                 .slurm_job = "41",
                                                                 .slurm_rank = "3"}));
}

TEST(ContainerTest, LeavesEmptyWhatItCannotRead) {
  const FakeProc fake;

  EXPECT_EQ(read_owner(fake.proc(), {.pid = 7}, nullptr), Owner{});
}

TEST(ContainerTest, KnowsAProcessThatHasGoneFromWhatTheKernelKept) {
  const FakeProc fake;
  const gpuperf_process_info info =
      make_info({"container", "crio-" + kId + ".scope",
                 "kubepods-besteffort-pod" + kUidUnderscored + ".slice"});

  EXPECT_EQ(read_owner(fake.proc(), {.pid = 7}, &info),
            (Owner{.container = "3f4a0c9d1b2e", .pod = kUid}));
}

TEST(ContainerTest, AsksProcForWhatTheKernelDidNotKeep) {
  FakeProc fake;
  fake.add_process(7, "/bin/a");
  fake.write(7, "cgroup", "4:memory:/kubepods/pod" + kUid + "/" + kId + "\n0::/\n");
  const gpuperf_process_info version_1 = make_info({});
  const gpuperf_process_info deep = make_info({"a", "b", "c"});
  const gpuperf_process_info other = make_info({kOther});

  for (const gpuperf_process_info& info : {version_1, deep}) {
    EXPECT_EQ(read_owner(fake.proc(), {.pid = 7}, &info),
              (Owner{.container = "3f4a0c9d1b2e", .pod = kUid}));
  }
  // The process has moved since its first call.
  EXPECT_EQ(read_owner(fake.proc(), {.pid = 7}, &other).container, "000000000000");
}

TEST(ContainerTest, TakesNothingFromTheNextProcessWithThePid) {
  FakeProc fake;
  fake.add_process(7, "/bin/next", 500);
  fake.write(7, "comm", "next\n");
  fake.write(7, "cgroup", "0::/docker/" + kOther + "\n");
  fake.write(7, "environ", std::string("SLURM_JOB_ID=41\0", 16));
  const gpuperf_process_info info = make_info({"docker-" + kId + ".scope", "system.slice"});

  EXPECT_EQ(read_owner(fake.proc(), {.pid = 7, .start_boot_ns = 4'000'000'000}, &info),
            Owner{.container = "3f4a0c9d1b2e"});
}

TEST(ContainerTest, ReadsItsOwnNameFromTheRealProc) {
  const auto pid = static_cast<uint32_t>(::getpid());

  EXPECT_EQ(read_owner(ProcFiles(), {.pid = pid}, nullptr).comm, "unit_test");
}

}  // namespace
}  // namespace gpuperf
