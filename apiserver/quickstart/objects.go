package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	namespace = "quickstart"
	// field is where an object of the quickstart keeps its value.
	field = "password"
)

// kind is one kind of object that the quickstart writes and reads, through the API and in
// etcd.
type kind struct {
	// resource is its name in etcd's keys.
	resource string
	write    func(ctx context.Context, s *stage, name, value string) error
	read     func(ctx context.Context, s *stage, name string) (string, error)
}

var (
	secrets    = kind{"secrets", writeSecret, readSecret}
	configMaps = kind{"configmaps", writeConfigMap, readConfigMap}
)

// stored returns what etcd holds for an object.
func (k kind) stored(ctx context.Context, s *stage, name string) ([]byte, error) {
	return s.etcd.Get(ctx, "/registry/"+k.resource+"/"+namespace+"/"+name)
}

// writeRead writes an object through the API, reads it back, and returns how it lies in
// etcd.
func (k kind) writeRead(ctx context.Context, s *stage, name, value string) (sealed, error) {
	if err := k.write(ctx, s, name, value); err != nil {
		return sealed{}, err
	}
	got, err := k.read(ctx, s, name)
	if err != nil {
		return sealed{}, err
	}
	if got != value {
		return sealed{}, fmt.Errorf("the API returns another value for %s/%s than was written", k.resource, name)
	}
	raw, err := k.stored(ctx, s, name)
	if err != nil {
		return sealed{}, err
	}
	return look(raw, []byte(value))
}

func makeNamespace(ctx context.Context, s *stage) error {
	wanted := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
	_, err := s.kube.CoreV1().Namespaces().Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// writeSecret creates a Secret or changes its value.
func writeSecret(ctx context.Context, s *stage, name, value string) error {
	client := s.kube.CoreV1().Secrets(namespace)
	wanted := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{field: value}}
	_, err := client.Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	return err
}

func readSecret(ctx context.Context, s *stage, name string) (string, error) {
	secret, err := s.kube.CoreV1().Secrets(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return string(secret.Data[field]), nil
}

// writeConfigMap creates a ConfigMap or changes its value.
func writeConfigMap(ctx context.Context, s *stage, name, value string) error {
	client := s.kube.CoreV1().ConfigMaps(namespace)
	wanted := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{field: value}}
	_, err := client.Create(ctx, wanted, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		_, err = client.Update(ctx, wanted, metav1.UpdateOptions{})
	}
	return err
}

func readConfigMap(ctx context.Context, s *stage, name string) (string, error) {
	configMap, err := s.kube.CoreV1().ConfigMaps(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return configMap.Data[field], nil
}
