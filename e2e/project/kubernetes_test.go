package project

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/promtable/promtable/e2e/harness"
)

// A kustomization is the part of kustomize's format that deploy/kubernetes uses.
type kustomization struct {
	metav1.TypeMeta `json:",inline"`
	Resources       []string `json:"resources"`
}

// podMonitor is the part of the resource of Prometheus' operator that deploy/kubernetes uses.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector  metav1.LabelSelector `json:"selector"`
		Endpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// kinds make an object of each kind that deploy/kubernetes has.
var kinds = map[string]func() metav1.Object{
	"v1 ServiceAccount":                      func() metav1.Object { return new(corev1.ServiceAccount) },
	"v1 Service":                             func() metav1.Object { return new(corev1.Service) },
	"v1 ConfigMap":                           func() metav1.Object { return new(corev1.ConfigMap) },
	"v1 PersistentVolumeClaim":               func() metav1.Object { return new(corev1.PersistentVolumeClaim) },
	"apps/v1 StatefulSet":                    func() metav1.Object { return new(appsv1.StatefulSet) },
	"apps/v1 Deployment":                     func() metav1.Object { return new(appsv1.Deployment) },
	"batch/v1 CronJob":                       func() metav1.Object { return new(batchv1.CronJob) },
	"autoscaling/v2 HorizontalPodAutoscaler": func() metav1.Object { return new(autoscalingv2.HorizontalPodAutoscaler) },
	"policy/v1 PodDisruptionBudget":          func() metav1.Object { return new(policyv1.PodDisruptionBudget) },
	"networking.k8s.io/v1 NetworkPolicy":     func() metav1.Object { return new(networkingv1.NetworkPolicy) },
	"monitoring.coreos.com/v1 PodMonitor":    func() metav1.Object { return new(podMonitor) },
}

// A cluster is what a kustomization applies.
type cluster struct {
	objects []metav1.Object
	names   map[string]bool // kind and name
}

// loadCluster decodes the objects of a directory of deploy/kubernetes. A field that Kubernetes does not know is an error, and so is a file
// that no kustomization names.
func loadCluster(t testing.TB, dir string) *cluster {
	t.Helper()
	c := &cluster{names: make(map[string]bool)}
	c.load(t, filepath.Join(harness.ModuleRoot, "deploy", "kubernetes", dir))
	return c
}

func (c *cluster) load(t testing.TB, dir string) {
	t.Helper()
	var k kustomization
	decodeStrictly(t, dir, []byte(mustReadFile(t, filepath.Join(dir, "kustomization.yaml"))), &k)
	if k.APIVersion != "kustomize.config.k8s.io/v1beta1" || k.Kind != "Kustomization" {
		t.Errorf("%s: %s %s", dir, k.APIVersion, k.Kind)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if f.Name() != "kustomization.yaml" && !slices.Contains(k.Resources, f.Name()) {
			t.Errorf("%s: no kustomization names %s", dir, f.Name())
		}
	}
	for _, name := range k.Resources {
		path := filepath.Join(dir, name)
		if filepath.Ext(name) == "" {
			c.load(t, path)
			continue
		}
		for _, document := range strings.Split(mustReadFile(t, path), "\n---\n") {
			c.decode(t, path, []byte(document))
		}
	}
}

func (c *cluster) decode(t testing.TB, path string, document []byte) {
	t.Helper()
	var of metav1.TypeMeta
	if err := yaml.Unmarshal(document, &of); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	newObject := kinds[of.APIVersion+" "+of.Kind]
	if newObject == nil {
		t.Fatalf("%s: unexpected kind %q of %q", path, of.Kind, of.APIVersion)
	}
	o := newObject()
	decodeStrictly(t, path, document, o)
	name := of.Kind + " " + o.GetName()
	if o.GetName() == "" || c.names[name] {
		t.Errorf("%s: %q has no name, or is there twice", path, name)
	}
	c.names[name] = true
	c.objects = append(c.objects, o)
}

// decodeStrictly decodes YAML as the API server does: a field that v does not know is an error, and so is one whose letters differ in case.
func decodeStrictly(t testing.TB, path string, text []byte, v any) {
	t.Helper()
	asJSON, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if strict, err := json.UnmarshalStrict(asJSON, v); err != nil || len(strict) > 0 {
		t.Fatalf("%s: %v %v", path, strict, err)
	}
}

// find returns the objects of a type.
func find[T metav1.Object](c *cluster) (found []T) {
	for _, o := range c.objects {
		if of, ok := o.(T); ok {
			found = append(found, of)
		}
	}
	return found
}

// A workload is what makes pods.
type workload struct {
	name   string
	pod    corev1.PodTemplateSpec
	claims []corev1.PersistentVolumeClaim // of a StatefulSet
}

// workloads returns those of the cluster: the adapter is the first.
func (c *cluster) workloads(t testing.TB) (all []workload) {
	t.Helper()
	for _, o := range find[*appsv1.StatefulSet](c) {
		all = append(all, workload{o.Name, o.Spec.Template, o.Spec.VolumeClaimTemplates})
		if !selects(o.Spec.Selector, o.Spec.Template.Labels) || !c.names["Service "+o.Spec.ServiceName] {
			t.Errorf("%s: selector %v, service %s", o.Name, o.Spec.Selector, o.Spec.ServiceName)
		}
	}
	for _, o := range find[*appsv1.Deployment](c) {
		all = append(all, workload{o.Name, o.Spec.Template, nil})
		if !selects(o.Spec.Selector, o.Spec.Template.Labels) || o.Spec.Replicas != nil {
			t.Errorf("%s: selector %v, replicas %v, which the autoscaler sets", o.Name, o.Spec.Selector, o.Spec.Replicas)
		}
	}
	for _, o := range find[*batchv1.CronJob](c) {
		all = append(all, workload{o.Name, o.Spec.JobTemplate.Spec.Template, nil})
	}
	if len(all) == 0 {
		t.Fatal("no workload")
	}
	return all
}

// selects says whether a selector, which is not empty, selects pods with labels.
func selects(selector *metav1.LabelSelector, labels map[string]string) bool {
	s, err := metav1.LabelSelectorAsMap(selector)
	if err != nil || len(s) == 0 {
		return false
	}
	for name, value := range s {
		if labels[name] != value {
			return false
		}
	}
	return true
}

// kubernetesOverlays are the directories that are applied.
var kubernetesOverlays = []string{"embedded", "bigtable"}

func TestKubernetes(t *testing.T) {
	for _, dir := range kubernetesOverlays {
		t.Run(dir, func(t *testing.T) {
			c := loadCluster(t, dir)
			pods := c.workloads(t)
			for _, w := range pods {
				c.checkPod(t, w)
			}
			c.checkSelectors(t, pods)
			for _, h := range find[*autoscalingv2.HorizontalPodAutoscaler](c) {
				if ref := h.Spec.ScaleTargetRef; !c.names[ref.Kind+" "+ref.Name] || kinds[ref.APIVersion+" "+ref.Kind] == nil {
					t.Errorf("autoscaler of %+v, which is not there", ref)
				}
				if *h.Spec.MinReplicas < 2 || h.Spec.MaxReplicas <= *h.Spec.MinReplicas || len(h.Spec.Metrics) == 0 {
					t.Errorf("autoscaler: %+v", h.Spec)
				}
			}
			for _, kind := range []string{"PodDisruptionBudget", "NetworkPolicy", "PodMonitor", "Service", "ServiceAccount"} {
				if !c.names[kind+" promtable"] {
					t.Errorf("no %s", kind)
				}
			}
			if dir == "embedded" && len(find[*batchv1.CronJob](c)) != 1 || dir == "bigtable" && len(find[*autoscalingv2.HorizontalPodAutoscaler](c)) != 1 {
				t.Error("no job for snapshots, or no autoscaler")
			}
		})
	}
}

// checkSelectors wants everything that selects pods to select those of the adapter, and ports to be theirs.
func (c *cluster) checkSelectors(t testing.TB, pods []workload) {
	t.Helper()
	adapter := pods[0].pod
	ports := make(map[string]bool)
	for _, p := range adapter.Spec.Containers[0].Ports {
		ports[p.Name] = true
	}
	check := func(what string, selector *metav1.LabelSelector, ofPorts ...string) {
		t.Helper()
		if !selects(selector, adapter.Labels) {
			t.Errorf("%s does not select the adapter: %v", what, selector)
		}
		for _, p := range ofPorts {
			if !ports[p] {
				t.Errorf("%s: the adapter has no port %q", what, p)
			}
		}
	}
	for _, o := range find[*corev1.Service](c) {
		for _, p := range o.Spec.Ports {
			check("service "+o.Name, &metav1.LabelSelector{MatchLabels: o.Spec.Selector}, p.TargetPort.StrVal)
		}
	}
	for _, o := range find[*policyv1.PodDisruptionBudget](c) {
		check("disruption budget", o.Spec.Selector)
	}
	for _, o := range find[*podMonitor](c) {
		for _, e := range o.Spec.Endpoints {
			check("pod monitor", &o.Spec.Selector, e.Port)
		}
		if len(o.Spec.Endpoints) == 0 {
			t.Error("the pod monitor has no endpoint")
		}
	}
	for _, o := range find[*networkingv1.NetworkPolicy](c) {
		check("network policy "+o.Name, &o.Spec.PodSelector)
		for _, rule := range o.Spec.Ingress {
			if len(rule.Ports) == 0 || len(rule.From) == 0 {
				t.Errorf("network policy %s lets all in: %+v", o.Name, rule)
			}
			for _, p := range rule.Ports {
				check("network policy "+o.Name, &o.Spec.PodSelector, p.Port.StrVal)
			}
			for _, from := range rule.From {
				if s := from.PodSelector; s != nil && !slices.ContainsFunc(pods, func(w workload) bool { return selects(s, w.pod.Labels) }) {
					t.Errorf("network policy %s lets in pods that are not there: %v", o.Name, s)
				}
			}
		}
	}
	for _, w := range pods {
		if a := w.pod.Spec.Affinity; a != nil {
			for _, term := range a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution {
				check("affinity of "+w.name, term.LabelSelector)
			}
		}
		for _, s := range w.pod.Spec.TopologySpreadConstraints {
			check("spread of "+w.name, s.LabelSelector)
		}
	}
}

// checkPod wants a pod with as few rights as the adapter needs, whose volumes and variables are there.
func (c *cluster) checkPod(t testing.TB, w workload) {
	t.Helper()
	var user int64
	for _, words := range readDockerfile(t, loadComposition(t)).stage("adapter").lines {
		if words[0] == "USER" {
			fmt.Sscanf(words[1], "%d:", &user)
		}
	}
	spec := w.pod.Spec
	s := spec.SecurityContext
	if s == nil || !is(s.RunAsNonRoot, true) || s.RunAsUser == nil || *s.RunAsUser != user || s.SeccompProfile == nil || s.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		t.Errorf("%s: security context %+v, and the image has user %d", w.name, s, user)
	}
	if !is(spec.AutomountServiceAccountToken, false) || !c.names["ServiceAccount "+spec.ServiceAccountName] {
		t.Errorf("%s: service account %q, whose token is mounted", w.name, spec.ServiceAccountName)
	}
	volumes := c.volumes(t, w)
	if len(spec.Containers) != 1 || len(spec.InitContainers) != 0 {
		t.Fatalf("%s: not one container", w.name)
	}
	container := spec.Containers[0]
	cs := container.SecurityContext
	if cs == nil || !is(cs.ReadOnlyRootFilesystem, true) || !is(cs.AllowPrivilegeEscalation, false) || cs.Capabilities == nil || !slices.Contains(cs.Capabilities.Drop, "ALL") {
		t.Errorf("%s: security context of its container: %+v", w.name, cs)
	}
	if container.Resources.Requests.Memory().IsZero() || container.Resources.Limits.Memory().Cmp(*container.Resources.Requests.Memory()) < 0 {
		t.Errorf("%s: resources %+v", w.name, container.Resources)
	}
	for _, m := range container.VolumeMounts {
		if !volumes[m.Name] {
			t.Errorf("%s: no volume %s", w.name, m.Name)
		}
	}
	// What is written must be on a volume: all else is read-only.
	for _, arg := range container.Args {
		path := arg[strings.Index(arg, "=")+1:]
		if !strings.HasPrefix(path, "/") {
			continue
		}
		if !slices.ContainsFunc(container.VolumeMounts, func(m corev1.VolumeMount) bool {
			return path == m.MountPath || strings.HasPrefix(path, m.MountPath+"/")
		}) {
			t.Errorf("%s: %s is on no volume", w.name, arg)
		}
	}
}

// is says whether a pointer is to v.
func is(p *bool, v bool) bool { return p != nil && *p == v }

// volumes returns the names of the volumes of a pod, whose claims must be there.
func (c *cluster) volumes(t testing.TB, w workload) map[string]bool {
	t.Helper()
	volumes := make(map[string]bool)
	for _, claim := range w.claims {
		volumes[claim.Name] = true
	}
	claims := make(map[string]bool)
	for _, o := range find[*corev1.PersistentVolumeClaim](c) {
		claims[o.Name] = true
	}
	for _, o := range find[*appsv1.StatefulSet](c) {
		for _, claim := range o.Spec.VolumeClaimTemplates { // as Kubernetes names the claim of the first pod
			claims[fmt.Sprintf("%s-%s-0", claim.Name, o.Name)] = true
		}
	}
	for _, v := range w.pod.Spec.Volumes {
		volumes[v.Name] = true
		if v.PersistentVolumeClaim == nil || !claims[v.PersistentVolumeClaim.ClaimName] {
			t.Errorf("%s: volume %s: no claim %+v", w.name, v.Name, v.PersistentVolumeClaim)
		}
	}
	return volumes
}

// args returns the arguments of a container, with what its variables stand for.
func (c *cluster) args(t testing.TB, container corev1.Container) []string {
	t.Helper()
	values := make(map[string]string)
	for _, e := range container.Env {
		ref := e.ValueFrom.ConfigMapKeyRef
		for _, m := range find[*corev1.ConfigMap](c) {
			if m.Name == ref.Name {
				values[e.Name] = m.Data[ref.Key]
			}
		}
		if values[e.Name] == "" {
			t.Errorf("%s: no ConfigMap has it: %+v", e.Name, ref)
		}
	}
	var all []string
	for _, arg := range container.Args {
		all = append(all, regexp.MustCompile(`\$\(\w+\)`).ReplaceAllStringFunc(arg, func(s string) string {
			value, ok := values[s[2:len(s)-1]]
			if !ok {
				t.Errorf("%s: no such variable", arg)
			}
			return value
		}))
	}
	return all
}

// TestKubernetesRuns runs the adapter with the arguments of its container, but for addresses and directories, and asks it what the kubelet, Prometheus
// and the job for snapshots ask.
func TestKubernetesRuns(t *testing.T) {
	for _, dir := range kubernetesOverlays {
		t.Run(dir, func(t *testing.T) {
			c := loadCluster(t, dir)
			pods := c.workloads(t)
			container := pods[0].pod.Spec.Containers[0]
			operators, data := harness.FreeAddress(t), t.TempDir()
			for _, p := range container.Ports {
				flag := map[string]string{"http": "--web.listen-address", "operators": "--web.admin-listen-address"}[p.Name]
				if want := fmt.Sprintf("%s=:%d", flag, p.ContainerPort); !slices.Contains(container.Args, want) {
					t.Errorf("port %s is %d, and the adapter has no %s", p.Name, p.ContainerPort, want)
				}
			}
			args := without(t, c.args(t, container), "--web.listen-address=")
			args = append(without(t, args, "--web.admin-listen-address="), "--web.admin-listen-address="+operators)
			b := harness.Backend{Args: args}
			if dir == "bigtable" {
				b.Env = harness.InProcess(t).Env
			}
			for i := range b.Args {
				b.Args[i] = strings.Replace(b.Args[i], "=/data/", "="+data+"/", 1)
			}
			a := harness.StartWithFlags(t, b)
			addresses := map[string]string{"http": a.Addr, "operators": operators}
			ask := func(port intstr.IntOrString, path string) string {
				resp := harness.MustGet(t, "http://"+addresses[port.StrVal]+path, nil)
				if resp.Status != http.StatusOK {
					t.Errorf("%s of port %s: %v", path, port.StrVal, resp)
				}
				return resp.Body
			}
			for _, probe := range []*corev1.Probe{container.LivenessProbe, container.ReadinessProbe} {
				if probe == nil || probe.HTTPGet == nil {
					t.Fatalf("probe %+v", probe)
				}
				ask(probe.HTTPGet.Port, probe.HTTPGet.Path)
			}
			for _, e := range find[*podMonitor](c)[0].Spec.Endpoints {
				if !strings.Contains(ask(intstr.FromString(e.Port), e.Path), "\nadapter_build_info{") {
					t.Errorf("%s of port %s has no metrics", e.Path, e.Port)
				}
			}
			if dir == "embedded" {
				c.runSnapshot(t, pods[1], operators, data)
			}
			a.Terminate(t)
		})
	}
}

// runSnapshot runs the job for snapshots against an adapter whose address for operators is here, and whose volume is in data.
func (c *cluster) runSnapshot(t *testing.T, job workload, operators, data string) {
	t.Helper()
	backup := t.TempDir()
	var words []string
	for _, arg := range c.args(t, job.pod.Spec.Containers[0]) {
		switch url, isURL := strings.CutPrefix(arg, "--url=http://"); {
		case isURL:
			c.checkServicePort(t, url)
			// As the service is asked by its name, the adapter must take that.
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+operators+"/api/v1/admin/tsdb/snapshot", nil)
			if err != nil {
				t.Fatal(err)
			}
			req.Host = url
			resp, err := http.DefaultClient.Do(req)
			if err != nil {
				t.Fatal(err)
			}
			body, err := io.ReadAll(resp.Body)
			resp.Body.Close()
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("a request to %s: %s %s %v", url, resp.Status, bytes.TrimSpace(body), err)
			}
			words = append(words, "--url=http://"+operators)
		case arg == "/backup":
			words = append(words, backup)
		default:
			words = append(words, strings.Replace(arg, "=/data/", "="+data+"/", 1))
		}
	}
	if code, output := harness.RunCommand(t, harness.Backend{}, words...); code != 0 {
		t.Fatalf("%q: %d\n%s", words, code, output)
	}
	if found, err := filepath.Glob(filepath.Join(backup, "*", "SNAPSHOT")); err != nil || len(found) != 1 {
		t.Errorf("snapshots: %q, %v", found, err)
	}
}

// checkServicePort wants a host:port to be a service of the cluster and a port of it.
func (c *cluster) checkServicePort(t testing.TB, hostport string) {
	t.Helper()
	for _, o := range find[*corev1.Service](c) {
		for _, p := range o.Spec.Ports {
			if fmt.Sprintf("%s:%d", o.Name, p.Port) == hostport {
				return
			}
		}
	}
	t.Errorf("no service is at %s", hostport)
}
