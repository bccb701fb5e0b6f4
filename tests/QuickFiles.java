package millpond.tests;

import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/** Hadoop's local files, but with permissions and links by the JVM's own calls, not by a process for each. */
public class QuickFiles extends RawLocalFileSystem {
  public void setPermission(Path path, FsPermission permission) throws IOException {
    String bits =
        permission.getUserAction().SYMBOL
            + permission.getGroupAction().SYMBOL
            + permission.getOtherAction().SYMBOL;
    Files.setPosixFilePermissions(pathToFile(path).toPath(), PosixFilePermissions.fromString(bits));
  }

  public FileStatus getFileLinkStatus(Path path) throws IOException {
    boolean link = Files.isSymbolicLink(pathToFile(path).toPath());
    return link ? super.getFileLinkStatus(path) : getFileStatus(path);
  }

  /** As a {@code FileSystem}, with checksums. */
  public static class Local extends LocalFileSystem {
    public Local() {
      super(new QuickFiles());
    }
  }

  /** As an {@code AbstractFileSystem}, without checksums. */
  public static class Raw extends DelegateToFileSystem {
    public Raw(Configuration configuration) throws IOException, URISyntaxException {
      super(FsConstants.LOCAL_FS_URI, new QuickFiles(), configuration, "file", false);
    }

    public int getUriDefaultPort() {
      return -1;
    }

    public boolean isValidName(String name) {
      return true;
    }
  }

  /** As an {@code AbstractFileSystem}, with checksums. */
  public static class Checked extends ChecksumFs {
    public Checked(URI uri, Configuration configuration) throws IOException, URISyntaxException {
      super(new Raw(configuration));
    }
  }
}
