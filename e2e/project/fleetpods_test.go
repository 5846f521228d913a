package project

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v2"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	sigsyaml "sigs.k8s.io/yaml"
)

// manifests are what a folder of deploy/kubernetes has.
type manifests struct {
	services     []corev1.Service
	policies     []networkingv1.NetworkPolicy
	budgets      []policyv1.PodDisruptionBudget
	statefulSets []appsv1.StatefulSet
	deployments  []appsv1.Deployment
	scalers      []autoscalingv2.HorizontalPodAutoscaler
}

// add decodes a document. A field that its kind does not have is an error.
func (m *manifests) add(text []byte) error {
	var head struct{ Kind string }
	if err := yaml.Unmarshal(text, &head); err != nil {
		return err
	}
	switch head.Kind {
	case "Service":
		return decode(text, &m.services)
	case "NetworkPolicy":
		return decode(text, &m.policies)
	case "PodDisruptionBudget":
		return decode(text, &m.budgets)
	case "StatefulSet":
		return decode(text, &m.statefulSets)
	case "Deployment":
		return decode(text, &m.deployments)
	case "HorizontalPodAutoscaler":
		return decode(text, &m.scalers)
	}
	return fmt.Errorf("a document of kind %q", head.Kind)
}

func decode[T any](text []byte, into *[]T) error {
	var one T
	if err := sigsyaml.UnmarshalStrict(text, &one); err != nil {
		return err
	}
	*into = append(*into, one)
	return nil
}

// pods are the templates of all pods, by the name of what makes them.
func (m *manifests) pods() map[string]corev1.PodTemplateSpec {
	pods := make(map[string]corev1.PodTemplateSpec)
	for _, s := range m.statefulSets {
		pods["StatefulSet "+s.Name] = s.Spec.Template
	}
	for _, d := range m.deployments {
		pods["Deployment "+d.Name] = d.Spec.Template
	}
	return pods
}

// selected returns the pods with these labels.
func (m *manifests) selected(labels map[string]string) (found []corev1.PodTemplateSpec) {
	for _, pod := range m.pods() {
		if isSubset(labels, pod.Labels) {
			found = append(found, pod)
		}
	}
	return found
}

func isSubset(some, all map[string]string) bool {
	for name, value := range some {
		if all[name] != value {
			return false
		}
	}
	return true
}

// readManifests reads the files that a kustomization names.
func readManifests(t testing.TB, dir string) (m manifests) {
	t.Helper()
	var k struct {
		Kind      string
		Resources []string
	}
	if err := yaml.Unmarshal([]byte(mustReadFile(t, filepath.Join(dir, "kustomization.yaml"))), &k); err != nil || k.Kind != "Kustomization" {
		t.Fatalf("%s: %v, %v", dir, k, err)
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != len(k.Resources)+1 {
		t.Errorf("%s has %q, and its kustomization names %q", dir, files, k.Resources)
	}
	for _, name := range k.Resources {
		m.addFile(t, filepath.Join(dir, name))
	}
	return m
}

func (m *manifests) addFile(t testing.TB, file string) {
	t.Helper()
	text := mustReadFile(t, file)
	for doc := range strings.SplitSeq(text, "\n---\n") {
		if err := m.add([]byte(doc)); err != nil {
			t.Errorf("%s: %v", file, err)
		}
	}
}

// TestFleetManifests: those of a fleet and of readers are of kinds that Kubernetes has, with its fields, and fit together: services and policies select pods that are there and have the ports, probes
// ask paths that the adapter has, and each flag is one of its.
func TestFleetManifests(t *testing.T) {
	flags := mustReadFile(t, "../../docs/configuration.md")
	for _, name := range []string{"fleet", "readers"} {
		m := readManifests(t, filepath.Join("../../deploy/kubernetes", name))
		t.Run(name, func(t *testing.T) {
			if len(m.pods()) == 0 || len(m.services) == 0 {
				t.Fatal("it has no pods, or no service")
			}
			m.checkServices(t)
			for name, pod := range m.pods() {
				checkPod(t, name, pod, flags)
			}
		})
	}
}

// checkServices wants what is selected to be there, with its ports.
func (m *manifests) checkServices(t *testing.T) {
	for _, s := range m.services {
		pods := m.selected(s.Spec.Selector)
		if len(pods) == 0 {
			t.Errorf("the service %s selects nothing", s.Name)
		}
		for _, pod := range pods {
			for _, port := range s.Spec.Ports {
				if !slices.ContainsFunc(pod.Spec.Containers[0].Ports, func(p corev1.ContainerPort) bool {
					return p.Name == port.TargetPort.String() && p.ContainerPort == port.Port
				}) {
					t.Errorf("the service %s has the port %s, which its pods do not", s.Name, port.TargetPort.String())
				}
			}
		}
	}
	for _, p := range m.policies {
		if len(m.selected(p.Spec.PodSelector.MatchLabels)) == 0 {
			t.Errorf("the policy %s selects nothing", p.Name)
		}
	}
	for _, b := range m.budgets {
		if len(m.selected(b.Spec.Selector.MatchLabels)) == 0 {
			t.Errorf("the budget %s selects nothing", b.Name)
		}
	}
	for _, s := range m.statefulSets {
		if !isSubset(s.Spec.Selector.MatchLabels, s.Spec.Template.Labels) || !slices.ContainsFunc(m.services, func(of corev1.Service) bool { return of.Name == s.Spec.ServiceName }) {
			t.Errorf("%s selects other pods, or has no service %s", s.Name, s.Spec.ServiceName)
		}
	}
	for _, d := range m.deployments {
		if !isSubset(d.Spec.Selector.MatchLabels, d.Spec.Template.Labels) {
			t.Errorf("%s selects other pods", d.Name)
		}
	}
	for _, h := range m.scalers {
		if _, ok := m.pods()[h.Spec.ScaleTargetRef.Kind+" "+h.Spec.ScaleTargetRef.Name]; !ok {
			t.Errorf("%s scales %v, which is not there", h.Name, h.Spec.ScaleTargetRef)
		}
	}
}

// checkPod wants the adapter of a pod to have its flags, and the paths and ports that probes ask, and to run with as little as it can.
func checkPod(t *testing.T, name string, pod corev1.PodTemplateSpec, flags string) {
	c := pod.Spec.Containers[0]
	listens := make(map[int32]bool)
	for _, arg := range c.Args {
		flag, value, _ := strings.Cut(arg, "=")
		if !strings.Contains(flags, "| `"+flag+"` |") {
			t.Errorf("%s: there is no flag %s", name, flag)
		}
		if strings.HasSuffix(flag, "listen-address") {
			var port int32
			if _, err := fmt.Sscanf(value[strings.LastIndex(value, ":"):], ":%d", &port); err != nil {
				t.Errorf("%s: %s: %v", name, arg, err)
			}
			listens[port] = true
		}
	}
	ports := make(map[int32]bool)
	for _, p := range c.Ports {
		ports[p.ContainerPort] = true
	}
	if !maps.Equal(ports, listens) {
		t.Errorf("%s has the ports %v, and its adapter listens at %v", name, ports, listens)
	}
	checkProbe := func(probe *corev1.Probe, path string) {
		if probe == nil || probe.HTTPGet == nil || probe.HTTPGet.Path != path || probe.HTTPGet.Port.String() != "http" {
			t.Errorf("%s: a probe asks %+v, want %s", name, probe, path)
		}
	}
	checkProbe(c.LivenessProbe, "/-/healthy")
	checkProbe(c.ReadinessProbe, "/-/ready")
	if c.StartupProbe != nil {
		checkProbe(c.StartupProbe, "/-/ready")
	}
	s := c.SecurityContext
	if s == nil || s.ReadOnlyRootFilesystem == nil || !*s.ReadOnlyRootFilesystem || s.AllowPrivilegeEscalation == nil || *s.AllowPrivilegeEscalation || s.Capabilities == nil || len(s.Capabilities.Drop) != 1 ||
		pod.Spec.SecurityContext == nil || pod.Spec.SecurityContext.RunAsNonRoot == nil || !*pod.Spec.SecurityContext.RunAsNonRoot {
		t.Errorf("%s has more rights than it needs", name)
	}
	if c.Resources.Limits.Memory().IsZero() || c.Resources.Requests.Cpu().IsZero() {
		t.Errorf("%s asks for no memory or CPU", name)
	}
	mounts := make(map[string]string)
	for _, v := range c.VolumeMounts {
		mounts[v.MountPath] = v.Name
	}
	for _, arg := range c.Args {
		_, value, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(value, "/") && !slices.ContainsFunc(slices.Collect(maps.Keys(mounts)), func(dir string) bool { return value == dir || strings.HasPrefix(value, dir+"/") }) {
			t.Errorf("%s: %s is in no volume", name, arg)
		}
	}
}
